"""Cached matching of values against expressions, with limited work per match. Pure.

A job with costly expressions on a large cluster is compared with some agents in one match and with more in the next, so
that it does not hold up the jobs behind it.
"""

from collections import ChainMap
from collections.abc import MutableMapping
from typing import Final

from mesos_gpu.model.jobs.pattern import cost, matches

Known = MutableMapping[tuple[str, str], bool]  # result by (expression, value)
#: In units of `pattern.cost`; takes 20 ms at most, enough to compare `node-[0-9]+` with a thousand names.
WORK_OF_JOB: Final = 200_000
WORK_IN_ALL: Final = 3 * WORK_OF_JOB
MAX_KNOWN: Final = 200_000


class MatchCache:
    """Results of matching in one match of jobs and nodes, or for one reader.

    Args:
        known: Cached results; read, and extended unless `reading`.
        reading: Whether new results are kept private instead of extending `known`.
    """

    def __init__(self, known: Known, *, reading: bool = False) -> None:
        if not reading and len(known) > MAX_KNOWN:
            known.clear()
        self._known: Known = ChainMap({}, known) if reading else known
        self._left, self._left_of_job = WORK_IN_ALL, WORK_OF_JOB
        self.is_behind = False  # whether a result was requested that is not known yet

    def next_job(self) -> None:
        """Start the budget of work of another job."""
        self._left_of_job = min(WORK_OF_JOB, self._left)

    def __call__(self, pattern: str, value: str) -> bool | None:
        """Return whether a value matches an expression; None if the work allowed now does not suffice to find out."""
        verdict = self._known.get((pattern, value))
        # One comparison may exceed the budget, so that there is always progress.
        if verdict is None and self._left_of_job > 0:
            work = cost(pattern, value)
            self._left, self._left_of_job = self._left - work, self._left_of_job - work
            verdict = self._known[pattern, value] = matches(pattern, value)
        self.is_behind |= verdict is None
        return verdict
