"""Webhooks move with the state: a scheduler that has nothing but a copy of it goes on where the other was."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.hooks.store import hooks_of
from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.saves import Save, Saved
from tests.conftest import wait_until
from tests.contract.events.receiver import Receiver, told
from tests.contract.events.test_hooks import Hooked

A, B = "http://a:1", "http://b:1"


class Leader(Hooked):
    """A leader. `patient`: whether the time between tries doubles, so that no event is given up before the end."""

    ended = patient = False

    def pause_s(self, tries: int) -> float:
        return super().pause_s(tries) * (2 ** (tries - 1) if self.patient else 1)

    def kill(self) -> None:
        super().close()
        self.ended = True

    def close(self) -> None:
        if not self.ended:
            super().close()


Next = Callable[[Hooked, str], Leader]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def first(tmp_path: Path, receiver: Receiver) -> Iterator[Leader]:
    rig = Leader(tmp_path / "a", receiver, A)
    yield rig
    rig.close()


@pytest.fixture
def then(tmp_path: Path, receiver: Receiver) -> Iterator[Next]:
    """Who leads after another was killed: from a copy of the state, as standbys have one."""
    rigs: list[Leader] = []

    def lead(before: Hooked, by: str) -> Leader:
        directory = tmp_path / by.rpartition("/")[2].partition(":")[0]
        directory.mkdir(exist_ok=True)
        state = directory / "state.sqlite"
        for each in directory.glob("state.sqlite*"):
            if not each.name.startswith(hooks_of(state).name):
                each.unlink()
        copy = tmp_path / "copy.sqlite"
        for each in (copy, hooks_of(copy)):
            each.unlink(missing_ok=True)
        backup(before.state, copy)
        copy.rename(state)
        rigs.append(Leader(directory, receiver, by))
        return rigs[-1]

    yield lead
    for rig in rigs:
        rig.close()


def saved(rig: Hooked) -> Saved:
    """What the state has, read on the thread that writes it."""
    return rig.daemon.read(lambda _: rig.store.load()).result(60)


def is_told(rig: Hooked) -> bool:
    """Whether the state knows how far the file of webhooks is."""
    sent, seen = saved(rig).sent, rig.hooks.seen() or 0
    return sent is not None and sent == rig.hooks.sent(sent.by, max(seen, rig.deliveries.seen))


def wait_for_told(receiver: Receiver, path: str, expected: list[tuple[str, str]], rig: Hooked) -> None:
    """Wait until the expected events have come at a path; a failure names those that came, and the webhooks."""
    try:
        wait_until(f"{path} gets its events", lambda: told(receiver, path) == expected)
    except AssertionError as error:
        raise AssertionError(
            f"{error}; came: {told(receiver, path)}, expected: {expected}, "
            f"webhooks: {rig.call('GET', '/v1/webhooks').json()}, due: {rig.hooks.due(float('inf'))}"
        ) from None


def test_webhooks_not_delivered_are_sent_by_the_next_leader_with_a_signature(
    first: Leader, then: Next, receiver: Receiver
) -> None:
    secret = first.hook("h", f"{receiver.url}/h", "submitted")
    taken = first.submit(name="one")
    wait_until("it is taken", lambda: first.hooks.counts() == {} and receiver.of("/h"))
    receiver.status, first.patient = 503, True
    jobs = [first.submit(name="two"), first.submit(name="three", notify=[f"{receiver.url}/mine"])]
    first.call("DELETE", f"/v1/jobs/{jobs[1]}")
    wait_until("it was tried", lambda: receiver.of("/mine") and len(receiver.of("/h")) > 1)
    wait_until("the state knows it", lambda: is_told(first))
    tried = receiver.of("/h")[-1]
    first.kill()
    receiver.taken, receiver.status = [], 200
    second = then(first, B)
    expected = [("submitted", job) for job in jobs]
    wait_for_told(receiver, "/h", expected, second)
    wait_for_told(receiver, "/mine", [("killed", jobs[1])], second)
    assert all(each.is_signed(secret) for each in receiver.of("/h"))
    assert receiver.of("/h")[0].headers["webhook-id"] == tried.headers["webhook-id"]
    assert taken not in json.dumps(told(receiver, "/h")), "it was taken before"
    assert [each["name"] for each in second.call("GET", "/v1/webhooks").json()["webhooks"]] == ["h"]


def test_webhooks_of_a_former_leader_are_not_sent_twice_and_keep_dead_letters(
    first: Leader, then: Next, receiver: Receiver
) -> None:
    first.hook("h", f"{receiver.url}/h", "submitted")
    receiver.status = 410
    dead = first.submit(name="dead")
    wait_until("it is given up", lambda: first.hooks.dead("h"))
    waits = first.submit(name="waits")
    wait_until("it was tried", lambda: ("submitted", waits) in told(receiver, "/h"))
    wait_until("the state knows it", lambda: is_told(first))
    first.kill()
    receiver.status = 200
    second = then(first, B)
    later = second.submit(name="later")
    wait_until("both are taken", lambda: ("submitted", later) in told(receiver, "/h"))
    second.hook("other", f"{receiver.url}/other", "submitted")
    wait_until("the state knows it", lambda: is_told(second))
    second.kill()
    receiver.taken = []
    again = then(second, A)
    last = again.submit(name="last")
    wait_until(
        "it goes on", lambda: told(receiver, "/h") == told(receiver, "/other") == [("submitted", last)]
    )
    assert [json.loads(each.body)["data"]["job_id"] for each in again.hooks.dead("h")] == [dead]


def test_a_dead_letter_that_is_tried_again_makes_nobody_send_the_rest_twice(
    first: Leader, then: Next, receiver: Receiver
) -> None:
    first.hook("h", f"{receiver.url}/h", "submitted")
    receiver.status = 410
    first.submit(name="dead")
    wait_until("it is given up", lambda: first.hooks.dead("h"))
    receiver.status = 200
    taken = first.submit(name="taken")
    wait_until("the next one is told", lambda: ("submitted", taken) in told(receiver, "/h"))
    wait_until("it is taken", lambda: first.hooks.counts() == {"h": (0, 1)})
    receiver.status = 503
    assert first.hooks.retry("h") == 1
    wait_until("the state knows it", lambda: is_told(first))
    first.kill()
    receiver.taken, receiver.status = [], 200
    second = then(first, B)
    last = second.submit(name="last")
    wait_for_told(receiver, "/h", [("submitted", last)], second)


def test_a_webhook_that_cannot_be_saved_is_not_made(
    first: Leader, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.hook("h", f"{receiver.url}/h")
    full = {"now": True}
    save = first.store.save

    def refusing(batch: list[Save]) -> None:
        if full["now"]:
            raise NoRoom("the disk is full", remedy="make room")
        save(batch)

    monkeypatch.setattr(first.store, "save", refusing)
    for name in ("one", "two"):
        body = {"url": f"{receiver.url}/{name}", "kinds": []}
        assert first.call("PUT", f"/v1/webhooks/{name}", json=body).status_code == 507
    assert first.call("DELETE", "/v1/webhooks/h").status_code == 507
    full["now"] = False
    assert [each["name"] for each in first.call("GET", "/v1/webhooks").json()["webhooks"]] == ["h"]

    def kept() -> list[str]:
        hooks = saved(first).hooks
        return [each.name for each in hooks.version.hooks] if hooks else []

    wait_until("the state has no other than the file", lambda: kept() == ["h"])


def test_a_file_of_webhooks_that_is_lost_comes_back_with_the_state(
    tmp_path: Path, receiver: Receiver
) -> None:
    rig = Leader(tmp_path / "state", receiver)
    secret = rig.hook("h", f"{receiver.url}/h", "submitted")
    rig.kill()
    for each in rig.state.parent.glob("*.hooks*"):
        each.unlink()
    again = Leader(tmp_path / "state", receiver)
    try:
        assert again.hooks.secret("h") == secret
        job = again.submit(name="one")
        wait_until("it is told", lambda: told(receiver, "/h") == [("submitted", job)])
    finally:
        again.close()
