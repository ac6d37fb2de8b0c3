"""Archives that are sent along with jobs: over the real interface, into a real store, out to an executor's client."""

import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from isolator.agent import uploads as executor
from isolator.host.fetch_bounds import FetchLimits
from isolator.host.not_started import NotStarted
from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings, OnFull
from mesos_gpu.adapters.uploads.store import UploadLimits, UploadStore
from mesos_gpu.cli.client import Client, Refused
from mesos_gpu.cli.code.archive import BadDirectory
from mesos_gpu.cli.code.send import upload
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.saves import Save
from mesos_gpu.model.tasks.assignment import Assignment
from mesos_gpu.wire.mesos.seal import secret_for
from tests.conftest import wait_until
from tests.contract.access.rig import AccessRig
from tests.contract.cli.cli_rig import call
from tests.contract.rig import Rig, code_of
from tests.doubles.builders import gpu
from tests.doubles.fake_driver import RecordingStore

KEY = b"k" * 16
BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def store(tmp_path: Path) -> UploadStore:
    return UploadStore(tmp_path / "uploads", UploadLimits(archive_bytes=4 << 20, owner_bytes=8 << 20))


@pytest.fixture
def rig(store: UploadStore) -> Iterator[Rig]:
    rig = Rig(uploads=store, task_key=lambda: KEY)
    rig.node()
    rig.node("a2", (gpu("g1"),))
    yield rig
    rig.close()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "train.py").write_text("print('hello')\n")
    return directory


def put(
    rig: Rig, data: bytes, digest: str = "", offset: int = 0, size: int | None = None
) -> requests.Response:
    digest = digest or hashlib.sha256(data).hexdigest()
    query = f"offset={offset}&size={len(data) if size is None else size}"
    return rig.call("PUT", f"/v1/uploads/{digest}?{query}", data=data, headers=BYTES)


def cli(rig: Rig, *words: str, code: int = 0, says: str = "") -> str:
    got = call("--url", rig.url, *words)
    assert got.exit_code == code, got.output
    assert says in got.stderr, got.stderr
    return got.stdout


def launched(rig: Rig, **fields: Any) -> tuple[str, str]:
    """A job, and the task that is launched for it."""
    job = rig.submit(name="t", **fields)["id"]
    wait_until("it is launched", lambda: bool(tasks_of(rig, job)))
    return job, str(tasks_of(rig, job)[0]["id"])


def tasks_of(rig: Rig, job: str) -> list[dict[str, Any]]:
    return list(rig.call("GET", f"/v1/jobs/{job}/tasks").json()["tasks"])


def wanted(
    rig: Rig, said: str, task: str, key: bytes = KEY, limits: FetchLimits | None = None
) -> executor.Wanted:
    plan = Assignment("j", 1, upload=said, scheduler_url=rig.url, secret=secret_for(key, task))
    return executor.Wanted(plan, task, {}, limits or FetchLimits())


def received(want: executor.Wanted, path: Path) -> bytes:
    with path.open("w+b") as file:
        executor.receive(want, file, aborted=lambda: False, patience_s=0.0)
    return path.read_bytes()


def test_a_directory_is_sent_once_and_comes_to_the_executor_as_it_was(
    rig: Rig, code: Path, tmp_path: Path
) -> None:
    with Client(rig.url) as client:
        said = upload(client, code)
        assert upload(client, code) == said
    _, task = launched(rig, upload=said)
    data = received(wanted(rig, said, task), tmp_path / "archive")
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == said
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert tar.getnames() == ["train.py"]


def test_more_than_one_piece_is_put_together_and_goes_on_after_a_break(rig: Rig) -> None:
    data = bytes(range(256)) * 6000
    digest, first = hashlib.sha256(data).hexdigest(), data[: 1 << 20]
    answer = put(rig, first, digest, size=len(data))
    assert (answer.status_code, answer.json()["complete"]) == (200, False)
    assert code_of(put(rig, first, digest, size=len(data))) == (409, "conflict")
    assert rig.call("GET", f"/v1/uploads/{digest}").json()["received_bytes"] == 1 << 20
    assert code_of(put(rig, b"x" * len(data), digest, 1 << 20, len(data))) == (413, "too-large")
    answer = put(rig, data[1 << 20 :], digest, 1 << 20, len(data))
    assert (answer.status_code, answer.json()["complete"]) == (200, True)
    assert rig.call("GET", "/v1/uploads").json()["uploads"][0]["sha256"] == digest


def test_upload_with_another_digest_is_refused_and_removed(rig: Rig) -> None:
    assert put(rig, b"bad", "0" * 64).status_code == 422
    assert rig.call("GET", f"/v1/uploads/{'0' * 64}").status_code == 404
    assert code_of(put(rig, b"bad", "A" * 64)) == (422, "invalid")
    too_many = put(rig, b"abc", size=2)
    assert too_many.status_code == 422, too_many.text


def test_a_job_without_its_archive_is_refused_before_it_waits(rig: Rig) -> None:
    answer = rig.call("POST", "/v1/jobs", json={"command": "true", "upload": f"sha256:{'1' * 64}"})
    assert code_of(answer) == (422, "invalid")
    assert [each["path"] for each in answer.json()["error"]["problems"]] == ["/upload"]


def test_the_limit_is_told_with_the_largest_files(rig: Rig, code: Path) -> None:
    (code / "weights.bin").write_bytes(hashlib.shake_256(b"x").digest(5 << 20))
    with (
        Client(rig.url) as client,
        pytest.raises(BadDirectory, match=r"would exceed 4\.0 MiB.*weights\.bin \(5\.0 MiB\)"),
    ):
        upload(client, code)
    assert code_of(put(rig, b"x", size=5 << 20)) == (413, "too-large")


def test_upload_is_given_only_to_the_executor_of_a_running_task_that_needs_it(
    rig: Rig, tmp_path: Path
) -> None:
    data = b"archive"
    assert put(rig, data).status_code == 200
    said = f"sha256:{hashlib.sha256(data).hexdigest()}"
    job, task = launched(rig, upload=said)
    _, other = launched(rig)
    path = tmp_path / "a"
    assert received(wanted(rig, said, task), path) == data
    for wrong in (
        wanted(rig, said, task, b"x" * 16),
        wanted(rig, said, other),
        wanted(rig, said, "nobody's"),
    ):
        with pytest.raises(NotStarted, match="404"):
            received(wrong, path)
    agent = tasks_of(rig, job)[0]["hostname"].partition(".")[0]
    rig.status(task, "TASK_RUNNING", agent)
    rig.status(task, "TASK_FINISHED", agent)
    wait_until("it has ended", lambda: rig.call("GET", f"/v1/jobs/{job}").json()["state"] == "finished")
    with pytest.raises(NotStarted, match="404"):
        received(wanted(rig, said, task), path)


def test_an_archive_that_a_host_has_no_room_for_is_not_taken(rig: Rig, tmp_path: Path) -> None:
    data = b"x" * 10
    assert put(rig, data).status_code == 200
    said = f"sha256:{hashlib.sha256(data).hexdigest()}"
    _, task = launched(rig, upload=said)
    with pytest.raises(NotStarted, match="more than"):
        received(wanted(rig, said, task, limits=FetchLimits(size_bytes=9)), tmp_path / "a")


def test_a_scheduler_that_is_away_costs_no_attempt(tmp_path: Path) -> None:
    plan = Assignment("j", 1, upload=f"sha256:{'0' * 64}", scheduler_url="http://127.0.0.1:1", secret="s")
    with pytest.raises(NotStarted) as caught:
        received(executor.Wanted(plan, "t", {}, FetchLimits()), tmp_path / "a")
    assert caught.value.outcome.infrastructure


def test_upload_cannot_be_used_by_its_digest_alone(store: UploadStore) -> None:
    rig = AccessRig(uploads=store)
    try:
        rig.bind({"names": ["ann", "carl"], "roles": ["user"]}, {"names": ["boss"], "roles": ["admin"]})
        data = b"secret code"
        digest = hashlib.sha256(data).hexdigest()
        path = f"/v1/uploads/{digest}"
        sent = rig.call("ann", "PUT", f"{path}?offset=0&size={len(data)}", data=data, headers=BYTES)
        assert sent.json()["complete"]
        job = {"command": "true", "upload": f"sha256:{digest}"}
        assert rig.call("ann", "POST", "/v1/jobs", json={**job, "user": "ann"}).status_code == 201
        assert rig.call("carl", "POST", "/v1/jobs", json={**job, "user": "carl"}).status_code == 422
        app = {"id": "/x", "cmd": "true", "instances": 0, "gpu": {"upload": f"sha256:{digest}"}}
        refused = rig.call("carl", "POST", "/v2/apps", json=app)
        assert refused.status_code == 422
        assert refused.json()["details"][0]["path"] == "/x/gpu/upload"
        assert rig.call("ann", "POST", "/v2/apps", json=app).status_code == 201
        assert rig.call("ann", "DELETE", path).status_code == 409, (
            "an app needs it, though it has no instance"
        )
        assert rig.call("carl", "GET", path).status_code == 404
        assert rig.call(None, "GET", path).status_code == 401
        assert rig.call("carl", "GET", "/v1/uploads").json()["uploads"] == []
    finally:
        rig.close()


def test_an_archive_is_on_record_once_not_by_its_pieces(store: UploadStore, tmp_path: Path) -> None:
    trail = AuditLog(AuditSettings(tmp_path / "audit", 8 << 20, 2, OnFull.REFUSE))
    rig = Rig(uploads=store, audit=trail)
    try:
        data = bytes(1 << 20) + b"end"
        digest = hashlib.sha256(data).hexdigest()
        put(rig, data[: 1 << 20], digest, 0, len(data))
        put(rig, b"end", digest, 1 << 20, len(data))
    finally:
        rig.close()
        trail.close()
    lines = [
        json.loads(line)
        for path in (tmp_path / "audit").glob("changes-*")
        for line in path.read_text().splitlines()
    ]
    assert [line["what"] for line in lines if "uploads" in str(line)] == ["PUT /v1/uploads/{sha256}"]


def test_upload_that_no_job_needs_is_listed_and_removed(rig: Rig) -> None:
    data, other = b"archive", b"other"
    assert put(rig, data).status_code == 200
    assert put(rig, other, size=20).json()["complete"] is False
    digest, partial = (hashlib.sha256(each).hexdigest() for each in (data, other))
    job, task = launched(rig, upload=f"sha256:{digest}")
    cli(rig, "uploads", "rm", digest[:8], code=73, says=f"1 job of yours needs it: {job}")
    rows = cli(rig, "uploads", "list", "--sort", "size").splitlines()
    assert [row.split()[:1] + row.split()[3:4] for row in rows[1:]] == [
        [partial[:12], "partial"],
        [digest[:12], "needed"],
    ]
    assert cli(rig, "uploads", "list", "-q", "--state", "needed").split() == [digest]
    removed = json.loads(cli(rig, "uploads", "rm", "--unused", "--json"))["removed"]
    assert [each["sha256"] for each in removed] == [partial]
    assert rig.call("GET", f"/v1/uploads/{partial}").status_code == 404
    agent = tasks_of(rig, job)[0]["hostname"].partition(".")[0]
    rig.status(task, "TASK_RUNNING", agent)
    rig.status(task, "TASK_FINISHED", agent)
    wait_until("it has ended", lambda: rig.call("GET", f"/v1/jobs/{job}").json()["state"] == "finished")
    cli(rig, "uploads", "rm", f"sha256:{digest[:8]}", says="1 upload removed")
    cli(rig, "uploads", "rm", digest[:8], code=66, says=f"no upload of yours is {digest[:8]}")
    cli(rig, "uploads", "rm", code=2)
    assert len(cli(rig, "uploads", "list").splitlines()) == 1, "the headings alone"


def test_upload_of_another_cannot_be_removed(store: UploadStore) -> None:
    rig = AccessRig(uploads=store)
    try:
        rig.bind({"names": ["ann", "carl"], "roles": ["user"]}, {"names": ["boss"], "roles": ["admin"]})
        digest = hashlib.sha256(b"code").hexdigest()
        rig.call("ann", "PUT", f"/v1/uploads/{digest}?offset=0&size=4", data=b"code", headers=BYTES)
        for name in ("carl", "boss"):
            assert rig.call(name, "DELETE", f"/v1/uploads/{digest}").status_code == 404
        assert rig.call("ann", "DELETE", f"/v1/uploads/{digest}").status_code == 200
        assert rig.call("ann", "GET", f"/v1/uploads/{digest}").status_code == 404
    finally:
        rig.close()


def test_a_body_of_another_kind_is_refused(rig: Rig) -> None:
    kinds = {"text/plain": 415, "multipart/form-data": 415}
    for kind, status in kinds.items():
        answer = rig.call("PUT", f"/v1/uploads/{'0' * 64}?size=1", data=b"x", headers={"Content-Type": kind})
        assert answer.status_code == status
    assert rig.call("POST", "/v1/jobs", data=b"{}", headers=BYTES).status_code == 415


def test_a_scheduler_without_a_store_says_so() -> None:
    rig = Rig()
    try:
        assert rig.call("GET", "/v1/uploads").status_code == 503
        with Client(rig.url) as client, pytest.raises(Refused, match="does not store archives"):
            client.submit({"command": "true", "upload": f"sha256:{'1' * 64}"})
    finally:
        rig.close()


def test_an_archive_is_not_removed_while_a_job_comes_that_needs_it(
    rig: Rig, store: UploadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(b"code").hexdigest()
    put(rig, b"code")
    begun, go_on, remove, came = threading.Event(), threading.Event(), store.remove, list[Any]()

    def later(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return remove(*given)

    monkeypatch.setattr(store, "remove", later)
    body = {"name": "t", "command": "true", "upload": f"sha256:{digest}"}
    removing = threading.Thread(target=lambda: came.append(rig.call("DELETE", f"/v1/uploads/{digest}")))
    removing.start()
    try:
        assert begun.wait(60), "nobody needs it yet"
        assert code_of(rig.call("POST", "/v1/jobs", json=body)) == (422, "invalid")
    finally:
        go_on.set()
        removing.join()
    assert came[0].status_code == 200
    put(rig, b"code")
    with store.held("", digest):
        assert code_of(rig.call("DELETE", f"/v1/uploads/{digest}")) == (409, "conflict")
    assert rig.call("POST", "/v1/jobs", json=body).status_code == 201


def test_slow_disk_of_one_owner_keeps_no_other_call_waiting(
    store: UploadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hold the sync of ann's last piece, and send more pieces of hers than the server has threads."""
    rig = AccessRig(uploads=store)
    begun, go_on = threading.Event(), threading.Event()

    def slow(_fd: int) -> None:
        begun.set()
        assert go_on.wait(60)

    def put(who: str, data: bytes) -> requests.Response:
        path = f"/v1/uploads/{hashlib.sha256(data).hexdigest()}?offset=0&size={len(data)}"
        return rig.call(who, "PUT", path, data=data, headers=BYTES)

    try:
        rig.bind({"names": ["ann", "bob"], "roles": ["user"]}, {"names": ["boss"], "roles": ["admin"]})
        held = hashlib.sha256(b"first").hexdigest()
        with ThreadPoolExecutor(60) as threads, monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", slow)
            putting = [threads.submit(put, "ann", b"first")]
            try:
                assert begun.wait(60)
                patch.undo()
                putting += [threads.submit(put, "ann", b"more %d" % number) for number in range(50)]

                def rest() -> None:
                    assert rig.call("bob", "GET", "/v1/health").status_code == 200
                    assert code_of(rig.call("ann", "DELETE", f"/v1/uploads/{held}")) == (409, "conflict")
                    assert put("bob", b"of bob").json()["complete"]
                    digest = hashlib.sha256(b"of bob").hexdigest()
                    job = {"command": "true", "user": "bob", "upload": f"sha256:{digest}"}
                    assert rig.call("bob", "POST", "/v1/jobs", json=job).status_code == 201
                    assert rig.call("bob", "GET", "/v1/uploads").status_code == 200
                    assert rig.call("boss", "GET", "/metrics").status_code == 200

                threads.submit(rest).result(60)
                assert not any(each.done() for each in putting)
            finally:
                go_on.set()
            assert all(each.result(60).json()["complete"] for each in putting)
    finally:
        rig.close()


class Full(RecordingStore):
    """A store whose disk is full until `has_room` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.has_room = True

    def save(self, batch: Iterable[Save]) -> None:
        if not self.has_room:
            raise NoRoom("the state cannot be written: full", remedy="make room")
        super().save(batch)


def test_archives_are_refused_while_the_state_cannot_be_saved(store: UploadStore) -> None:
    saving = Full()
    rig = Rig(store=saving, uploads=store)
    try:
        rig.submit()
        saving.has_room = False
        assert code_of(rig.call("POST", "/v1/jobs", json={"command": "true"})) == (507, "no-room")
        refused = put(rig, b"code")
        assert code_of(refused) == (507, "no-room")
        assert "no archive is accepted now: the state cannot be written: full" in refused.text
        saving.has_room = True
        wait_until("it goes on", lambda: rig.daemon.unsaved is None)
        assert put(rig, b"code").json()["complete"]
    finally:
        saving.has_room = True
        rig.close()
