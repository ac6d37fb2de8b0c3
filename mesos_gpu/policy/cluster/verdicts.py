"""Whether values match expressions: remembered, and found for so much work at a time. Pure.

A job with costly expressions on a large cluster is compared with some agents in one match, with more in the next; what
waits behind it is not held up.
"""

from collections import ChainMap
from collections.abc import MutableMapping
from typing import Final

from mesos_gpu.model.jobs.pattern import cost, matches

Known = MutableMapping[tuple[str, str], bool]  # by expression and value
#: Of `pattern.cost`; takes 20 ms at the most. `node-[0-9]+` is compared with a thousand names for that.
WORK_OF_JOB: Final = 200_000
WORK_IN_ALL: Final = 3 * WORK_OF_JOB
MAX_KNOWN: Final = 200_000


class Verdicts:
    """The verdicts of a match, or of a reader."""

    def __init__(self, known: Known, *, reading: bool = False) -> None:
        """`known` is read, and grows, unless it is a reader's: that one keeps to itself what it finds."""
        if not reading and len(known) > MAX_KNOWN:
            known.clear()
        self._known: Known = ChainMap({}, known) if reading else known
        self._left, self._left_of_job = WORK_IN_ALL, WORK_OF_JOB
        self.is_behind = False  # whether something was asked that is not known yet

    def next_job(self) -> None:
        """What is asked from now on is for another job."""
        self._left_of_job = min(WORK_OF_JOB, self._left)

    def __call__(self, pattern: str, value: str) -> bool | None:
        """`Judge`."""
        verdict = self._known.get((pattern, value))
        if verdict is None and self._left_of_job > 0:  # one goes beyond it: there is always some progress
            work = cost(pattern, value)
            self._left, self._left_of_job = self._left - work, self._left_of_job - work
            verdict = self._known[pattern, value] = matches(pattern, value)
        self.is_behind |= verdict is None
        return verdict
