"""Requests without a proved name that a standby passes on: limited for each address as those that it answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from mesos_gpu.access.rate import Limits
from mesos_gpu.api.http.standing import ShutdownAnswers
from mesos_gpu.api.standby.heard import ForwardedRequests
from mesos_gpu.api.standby.lines import Lines
from mesos_gpu.api.standby.passing import Forwarder, Leader
from mesos_gpu.api.standby.standby import Copy, Standby
from mesos_gpu.api.standby.word import Signer, Verifier
from mesos_gpu.api.v1.files.uploads import PASS, TASK
from mesos_gpu.wire.mesos.seal import pass_for, secret_for
from tests.contract.abuse.test_rate import from_address
from tests.contract.ha.test_passing import KEY, METHODS, RUN, Leading, served
from tests.contract.login.rig import LoginRig, TokenStore

FEW: Final = Limits(unnamed_rate_per_s=0.01, unnamed_burst=3)
PASSED_ON: Final = "/v1/nodes"
UNKNOWN: Final = f"mgpu_{'0' * 20}_{'x' * 43}"


@contextmanager
def standing_by() -> Iterator[tuple[LoginRig, TokenStore, Leading]]:
    """A standby that asks for names, and a leader that answers whatever comes."""
    leading, store = Leading(), TokenStore()
    route = Route("/{path:path}", leading.told, methods=METHODS)
    leader = served(
        Starlette(routes=[route], middleware=[Middleware(ForwardedRequests, verifier=Verifier(KEY, RUN))])
    )
    known = Leader(leader.url, RUN)
    rig = LoginRig(
        [store.prover()],
        limits=FEW,
        task_key=lambda: KEY,
        outer=lambda who: [
            Middleware(ShutdownAnswers),
            Middleware(
                Standby,
                passing=Forwarder(lambda: known, Signer(lambda: KEY), who),
                lines=Lines(lambda: known, ()),
                copy=Copy(lambda: 1.0, store.kept.__contains__),
                leader=lambda: known,
                names=(),
                asks_names=True,
            ),
        ],
    )
    try:
        yield rig, store, leading
    finally:
        rig.close()
        leader.stop()


def test_unnamed_requests_that_are_passed_on_are_bounded_with_those_that_are_not() -> None:
    with standing_by() as (rig, _, leading):
        assert rig.call("GET", "/v1/jobs").status_code == 401, "the standby answers that"
        assert [rig.call("POST", PASSED_ON).status_code for _ in range(4)] == [201, 201, 429, 429]
        assert leading.asked == 2
        refused = rig.call("GET", PASSED_ON)
        assert (refused.json()["error"]["code"], refused.headers["Retry-After"]) == ("rate", "100")
        assert rig.call("GET", "/v1/jobs").status_code == 429
        assert from_address(rig.server.port, "127.0.0.2", PASSED_ON) == 200  # another address


@pytest.mark.parametrize("headers", [{"Authorization": f"Bearer {UNKNOWN}"}, {"Cookie": "mesos_gpu=some"}])
def test_a_proof_that_only_the_leader_can_check_is_passed_on_uncounted(headers: dict[str, str]) -> None:
    with standing_by() as (rig, _, leading):
        assert [rig.call("GET", PASSED_ON, headers=headers).status_code for _ in range(6)] == [200] * 6
        assert [rig.call("GET", PASSED_ON).status_code for _ in range(4)] == [200] * 3 + [429]
        assert rig.call("GET", PASSED_ON, headers=headers).status_code == 200
        assert leading.asked == 10


def test_requests_of_executors_through_a_standby_are_not_counted() -> None:
    path = f"/v1/uploads/{'a' * 64}/archive"
    with standing_by() as (rig, _, _leading):
        for secret, statuses in (
            (pass_for(secret_for(KEY, "t1"), f"GET {path}"), [200] * 6),
            ("0" * 64, [200] * 3 + [429] * 3),
        ):
            headers = {TASK: "t1", PASS: secret}
            assert [rig.call("GET", path, headers=headers).status_code for _ in range(6)] == statuses
