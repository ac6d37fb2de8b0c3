"""The route to what a job left: paths, and how many copies there are at once."""

from contextlib import ExitStack

import pytest

from mesos_gpu.api.channel.kept import MOST_AT_ONCE, MOST_OF_ONE, UnderWay, path_of
from mesos_gpu.api.http.answers import Refusal


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
            under_way.room("ann")
            open_.enter_context(under_way.one("ann"))
        with pytest.raises(Refusal, match=f"{MOST_OF_ONE} copies out of sandboxes of ann") as error:
            under_way.room("ann")
        assert error.value.http_status == 429
        for number in range(MOST_AT_ONCE - MOST_OF_ONE):
            under_way.room(f"user{number}")
            open_.enter_context(under_way.one(f"user{number}"))
        with pytest.raises(Refusal, match=f"and {MOST_AT_ONCE} of all"):
            under_way.room("bob")
    under_way.room("ann")
