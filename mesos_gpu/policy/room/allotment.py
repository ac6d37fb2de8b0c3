"""How many tasks of one job each of some nodes gets. Pure."""

from collections.abc import Callable, Sequence


def allot(
    tasks: int, room: Sequence[int], take: Callable[[int], bool] | None = None, *, in_turn: bool = False
) -> list[int]:
    """Share out tasks over nodes; fewer than `tasks` in all: there is no more room.

    Args:
        tasks: How many the job has.
        room: For how many of them each node has room, in the order in which nodes are tried.
        take: Called with the position of a node: puts one task there if the job's constraints allow it, and says
            whether it did; None: nothing binds the job.
        in_turn: One a node in turn; else each task goes to the first node that takes it.
    """
    counts, missing = [0] * len(room), tasks
    if take is None and not in_turn:
        for i, most in enumerate(room):
            counts[i] = min(most, missing)
            missing -= counts[i]
        return counts
    before = missing + 1
    while 0 < missing < before:
        before = missing
        for i, most in enumerate(room):
            if missing and counts[i] < most and (take is None or take(i)):
                counts[i] += 1
                missing -= 1
                if not in_turn:
                    break
    return counts
