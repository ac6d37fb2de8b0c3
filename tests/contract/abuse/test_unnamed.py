"""Requests without a proved name: refused before routing, and limited for each address."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.types import Message

from mesos_gpu.access.asked import Asked
from mesos_gpu.access.rate import Limits
from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings
from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.adapters.uploads.store import UploadLimits, UploadStore
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.v1.files.uploads import PASS, TASK
from mesos_gpu.model.access.record import Result
from mesos_gpu.wire.mesos.seal import pass_for, secret_for
from tests.contract.abuse.test_rate import from_address
from tests.contract.login.rig import LoginRig, TokenStore
from tests.contract.rig import Rig

WRONG: Final = f"mgpu_{'0' * 20}_{'x' * 43}"
KEY: Final = b"k" * 16
FEW: Final = Limits(unnamed_rate_per_s=0.01, unnamed_burst=3)


@contextmanager
def asking(limits: Limits = FEW, **more: Any) -> Iterator[tuple[LoginRig, TokenStore]]:
    store = TokenStore()
    rig = LoginRig([store.prover()], limits=limits, **more)
    try:
        yield rig, store
    finally:
        rig.close()


@pytest.mark.parametrize("token", [None, WRONG], ids=["no proof", "a wrong proof"])
def test_unnamed_requests_of_an_address_are_bounded_and_named_ones_are_not(token: str | None) -> None:
    with asking() as (rig, store):
        right, before = store.make("root"), REFUSED.read()[Reason.RATE]
        statuses = [rig.call("GET", "/v1/jobs", token).status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        refused = rig.call("GET", "/v1/jobs", token)
        assert (refused.json()["error"]["code"], refused.headers["Retry-After"]) == ("rate", "100")
        assert "127.0.0.1 sends more than 0.01 requests/s without authentication" in refused.text
        assert [rig.call("GET", "/v1/jobs", right).status_code for _ in range(5)] == [200] * 5
        assert from_address(rig.server.port, "127.0.0.2", "/v1/jobs") == 401  # another address
        assert REFUSED.read()[Reason.RATE] == before + 3


def test_unnamed_requests_for_what_is_open_to_all_count_too() -> None:
    with asking() as (rig, store):
        paths = ("/v1/login", "/v1/health", "/ping", "/", "/static/app.js")
        assert [rig.call("GET", each).status_code for each in paths] == [200, 200, 200, 429, 429]
        assert rig.call("GET", "/ping", store.make("ann")).status_code == 200


def test_usual_polls_without_a_name_are_within_the_default() -> None:
    """Three load balancers and a Prometheus behind one address, each second for a minute, at once."""
    with asking(Limits(), open_routes=("ping", "metrics")) as (rig, _):
        statuses = [rig.call("GET", path).status_code for path in ("/ping", "/metrics/prometheus") * 30]
    assert statuses == [200] * 60


def test_a_client_behind_a_trusted_proxy_has_a_count_of_its_own() -> None:
    proxies = Proxies((ip_network("127.0.0.1/32"),))
    with asking(proxies=proxies) as (rig, _):
        for client in ("10.0.0.1", "10.0.0.2"):
            for token in (None, WRONG):
                headers = {"X-Forwarded-For": client}
                rig.call("GET", "/v1/jobs", token, headers=headers)
        statuses = [
            rig.call("GET", "/v1/jobs", headers={"X-Forwarded-For": "10.0.0.1"}).status_code for _ in range(2)
        ]
        assert statuses == [401, 429]


def test_a_scheduler_without_authentication_does_not_limit_unnamed_requests() -> None:
    rig = Rig(limits=FEW)
    try:
        assert [rig.call("GET", "/v1/jobs").status_code for _ in range(10)] == [200] * 10
    finally:
        rig.close()


def test_requests_of_executors_are_not_counted_with_their_host(tmp_path: Path) -> None:
    """Tasks get their archives whatever else their host sends: the pass is the proof, not the path."""
    store = UploadStore(tmp_path / "uploads", UploadLimits(1 << 12, 1 << 13))
    with asking(uploads=store, task_key=lambda: KEY) as (rig, _):
        path = f"/v1/uploads/{'a' * 64}/archive"
        shown = pass_for(secret_for(KEY, "t1"), f"GET {path}")
        for secret, statuses in ((shown, [404] * 6), ("0" * 64, [404] * 3 + [429] * 3), (shown, [404] * 6)):
            headers = {TASK: "t1", PASS: secret}
            assert [rig.call("GET", path, headers=headers).status_code for _ in range(6)] == statuses


def test_refusals_without_a_name_are_on_record_first_whole_and_then_counted(tmp_path: Path) -> None:
    trail = AuditLog(AuditSettings(tmp_path / "audit"))
    with asking(Limits(unnamed_burst=10), audit=trail) as (rig, _):
        for _ in range(60):
            rig.call("GET", "/v1/jobs/some")
    trail.close()
    again = AuditLog(AuditSettings(tmp_path / "audit"))
    records = [
        record for _, record in again.search(Asked(result=Result.REFUSED), limit=100, cursor="").records
    ]
    again.close()
    counts = [record.count for record in records if record.what == "refusals"]
    whole = [record for record in records if record.what != "refusals"]
    assert len(whole) <= 40  # a minute may end meanwhile
    assert len(whole) + sum(counts) == 60


# --- costs


def calls_of(rig: LoginRig, *headers: tuple[bytes, bytes]) -> int:
    """Return the number of Python function calls for GET /v1/jobs: the fewest of 60 requests.

    The first ones do more: they import modules, and those that are refused are audited whole.
    """
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/v1/jobs", "raw_path": b"/v1/jobs", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost"), *headers], "client": ("127.0.0.9", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    called = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal called
        called += event == "call"

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Message) -> None:
        pass

    async def ask() -> None:
        await rig.app({**scope, "state": {}}, receive, send)

    async def ask_often() -> list[int]:
        nonlocal called
        counts = []
        for _ in range(60):
            called = 0
            gc.disable()  # finalizers of other tests' objects are no calls of the request
            sys.setprofile(count)
            try:
                await ask()
            finally:
                sys.setprofile(None)
                gc.enable()
            counts.append(called)
        return counts

    return min(asyncio.run(ask_often()))


def test_a_request_without_a_proof_costs_less_than_a_good_one(tmp_path: Path) -> None:
    trail = AuditLog(AuditSettings(tmp_path / "audit"))
    with asking(Limits(), audit=trail) as (rig, store):
        good = calls_of(rig, (b"authorization", f"Bearer {store.make('root')}".encode()))
        unnamed = calls_of(rig)
        wrong = calls_of(rig, (b"authorization", f"Bearer {WRONG}".encode()))
    trail.close()
    assert unnamed < good, (unnamed, wrong, good)
    assert wrong < good, (unnamed, wrong, good)
