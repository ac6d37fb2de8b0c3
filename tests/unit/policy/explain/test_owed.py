"""Words on guarantees of jobs that wait, and on the room that others make for them."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.jobs.why import GuaranteeShare, PendingReclaim, VictimGroup
from mesos_gpu.policy.explain.owed import by_room, free_words, owed_words, room_words

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
PIECES = "queue ml is guaranteed a number of GPUs, which may be scattered over nodes"


def giver(queue: str, milli: int, *jobs: str) -> VictimGroup:
    return VictimGroup(queue, tuple(map(JobId, jobs)), milli)


@pytest.mark.parametrize(
    ("free", "words"),
    [
        ([], "no GPU is free"),
        ([1], "1 GPU is free, on 1 node"),
        ([4], "4 GPUs are free, on 1 node"),
        ([1, 3], "4 GPUs are free, on 2 nodes with at most 3 each"),
        ([2, 1, 1], "4 GPUs are free, on 3 nodes with at most 2 each"),
    ],
)
def test_free_gpus_are_told_with_how_they_lie(free: Sequence[int], words: str) -> None:
    assert free_words(free) == words


@pytest.mark.parametrize(
    ("givers", "at_s", "after", "words"),
    [
        ([giver("dev", 1000, "j1")], 0.0, "", "reclaim of 1 GPU from queue dev (j1) now"),
        ([giver("dev", 1500, "j1", "j2")], 5.0, "", "reclaim of 1.5 GPUs from queue dev (j1, j2) now"),
        ([giver("dev", 3000, "a", "b", "c")], 5.5, "", "reclaim of 3 GPUs from queue dev (a, b, c) at 12:00Z"),
        (
            [giver("dev", 2000, "a", "b"), giver("ops", 4000, "c", "d")], 3600.0, "its notice",
            "reclaim of 2 GPUs from queue dev, 4 GPUs from queue ops (a, b, c and 1 more) at 13:00Z after its notice",
        ),
        (
            [giver("ops", 4000, *"abcde")], -60.0, "",
            "reclaim of 4 GPUs from queue ops (a, b, c and 2 more) now",
        ),
    ],
)  # fmt: skip
def test_room_to_come_names_its_givers_and_its_time(
    givers: list[VictimGroup], at_s: float, after: str, words: str
) -> None:
    room = PendingReclaim(tuple(givers), NOON + at_s, NOON + at_s + 90, after)
    assert room_words(room, NOON) == words
    assert by_room(room, NOON) == Estimate(NOON + at_s + 90, f"{words}, with their notice and grace")
    owed = GuaranteeShare("ml", seated=True, in_nodes=False, seated_milli=1000, spared_milli=1000, room=room)
    assert owed_words(owed, [1, 3], NOON) == f"4 GPUs are free, on 2 nodes with at most 3 each; {words}"


@pytest.mark.parametrize(
    ("seated_milli", "spared_milli", "in_nodes", "words"),
    [
        (0, 0, True, "no GPU is free"),
        (0, 0, False, f"no GPU is free; {PIECES}"),
        (3000, 0, True, "no GPU is free; 3 GPUs are held by jobs within guarantees"),
        (0, 2500, True, "no GPU is free; 2.5 GPUs by jobs that are not preempted for it"),
        (
            1, 1, False,
            "no GPU is free; 0.001 GPUs are held by jobs within guarantees and 0.001 GPUs by jobs that are not "
            f"preempted for it; {PIECES}",
        ),
    ],
)  # fmt: skip
def test_guarantee_that_is_taken_names_who_holds_it(
    seated_milli: int, spared_milli: int, in_nodes: bool, words: str
) -> None:
    owed = GuaranteeShare(
        "ml", seated=True, in_nodes=in_nodes, seated_milli=seated_milli, spared_milli=spared_milli
    )
    assert owed_words(owed, [], NOON) == words
