"""Progress of the match of jobs with offers."""

from dataclasses import dataclass, field
from math import inf

from mesos_gpu.engine.parts.metadata import DERIVED


@dataclass(slots=True)
class MatchPart:
    """Matches of the state. Times are in seconds since the epoch.

    Attributes:
        unmatched: Whether something has changed since the last match that may let a job start.
        matched_at: Time of the last match.
        drawn: Number of tasks of jobs so far, which draws lots between nodes that are equally good.
        next_moment: Time at which the next protection or patience of a job ends.
        verdicts: Results of constraints by expression and value.
    """

    unmatched: bool = True
    matched_at: float = 0.0
    drawn: int = 0
    next_moment: float = field(default=inf, compare=False, metadata=DERIVED)
    verdicts: dict[tuple[str, str], bool] = field(default_factory=dict, compare=False, metadata=DERIVED)
