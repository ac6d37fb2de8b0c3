"""The route to what a job left: paths, and how many copies there are at once."""

import asyncio
from contextlib import ExitStack

import pytest

from mesos_gpu.api.channel import kept
from mesos_gpu.api.channel.kept import MOST_AT_ONCE, MOST_OF_HOST, MOST_OF_ONE, UnderWay, path_of
from mesos_gpu.api.channel.within import Within
from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import JobId


@pytest.mark.parametrize("path", ["/etc", "..", "a/../..", "a\0b", "x" * 300])
def test_a_path_outside_is_refused(path: str) -> None:
    with pytest.raises(Refusal):
        path_of(path)


@pytest.mark.parametrize(
    ("path", "names"),
    [("", ()), (".", ()), ("a//b/", ("a", "b")), ("a/../b", ("b",)), ("/mnt/mesos/sandbox/a", ("a",))],
)
def test_a_path_inside_is_names(path: str, names: tuple[str, ...]) -> None:
    assert path_of(path) == names


def test_neither_one_caller_nor_all_have_more_copies_under_way_than_they_may() -> None:
    under_way = UnderWay()
    with ExitStack() as open_:
        for _ in range(MOST_OF_ONE):
            under_way.room("ann", "h1")
            open_.enter_context(under_way.one("ann", "h1"))
        with pytest.raises(Refusal, match=f"{MOST_OF_ONE} copies out of sandboxes of ann") as error:
            under_way.room("ann", "h1")
        assert error.value.http_status == 429
        for number in range(MOST_AT_ONCE - MOST_OF_ONE):
            under_way.room(f"user{number}", f"h{number}")
            open_.enter_context(under_way.one(f"user{number}", f"h{number}"))
        with pytest.raises(Refusal, match=f"and {MOST_AT_ONCE} of all"):
            under_way.room("bob", "h99")
    under_way.room("ann", "h1")


def test_copies_from_a_host_that_hangs_leave_room_for_those_from_others() -> None:
    under_way = UnderWay()
    with ExitStack() as open_:
        for number in range(MOST_OF_HOST):
            under_way.room(f"user{number}", "frozen")
            open_.enter_context(under_way.one(f"user{number}", "frozen"))
        with pytest.raises(Refusal, match=f"{MOST_OF_HOST} from frozen"):
            under_way.room("ann", "frozen")
        under_way.room("ann", "h1")
    under_way.room("ann", "frozen")


def test_copies_of_one_caller_from_one_host_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host reads for two at a time: both could be one caller's who reads slowly."""
    monkeypatch.setattr(kept, "TURN_S", 0.05)

    async def ask() -> None:
        under_way = UnderWay()
        first = await under_way.turn("ann", "h1")
        with pytest.raises(Refusal, match="another copy of ann out of a sandbox on h1") as error:
            await under_way.turn("ann", "h1")
        assert error.value.http_status == 429
        for key, host in (("bob", "h1"), ("ann", "h2")):
            (await under_way.turn(key, host)).release()
        monkeypatch.setattr(kept, "TURN_S", 60.0)
        second = asyncio.create_task(under_way.turn("ann", "h1"))
        await asyncio.sleep(0)
        assert not second.done()
        first.release()
        (await second).release()

    asyncio.run(ask())


def test_a_host_that_comes_and_sends_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "FIRST_S", 0.1)
    with pytest.raises(Unavailable, match="sent nothing in"):
        asyncio.run(asyncio.wait_for(kept._first(Within().output(), JobId("j")), 10))
