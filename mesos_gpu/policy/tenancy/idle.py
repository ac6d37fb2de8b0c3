"""Rules for taking back GPUs that a job leaves idle. Pure.

Time is divided into windows. A window counts only if it was observed: one in which the use of the GPUs is unknown
changes nothing, not even for a job that was warned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tenancy import Idle, IdlePolicy

RESUME_FACTOR: Final = 2  # a job that is busy for this many times `busy_share` of a window has resumed
MIN_REPORTS: Final = 3  # reports of a monitor that are needed before a job is warned
MAX_WINDOW_S: Final = 60.0
#: Least number of windows from a notice to the end of the job: enough for a whole one to show whether it resumes.
WINDOWS_OF_NOTICE: Final = 3
#: Age in windows up to which an observation is current: the window that is still open cannot count.
_FRESH_WINDOWS: Final = 2
#: Longest window in multiples of its nominal length while reports are on time: it ends with a report.
_MAX_WINDOWS: Final = 2
_PARTS: Final = 10  # windows before a warning


class Used(NamedTuple):
    """Observed work of one card for a job in a window, in milliseconds."""

    elapsed_ms: int
    seen_ms: int
    busy_ms: int


class Verdict(Enum):
    """Activity of a job in one window."""

    IDLE = "idle"
    PAUSED = "paused"  # busy now and then: not idle, but not resumed; half of the window counts as idle
    WORKING = "working"
    UNKNOWN = "unknown"


def window_s(rules: Idle, report_interval_s: float) -> float:
    """Return the length of a window: several reports if there is time, so that occasional work is noticed."""
    return max(report_interval_s, min(MAX_WINDOW_S, rules.warn_after_s / _PARTS))


def lead_s(rules: Idle, report_interval_s: float, asked_s: float) -> float:
    """Return the seconds from a notice to the end of the job.

    Args:
        rules: Idle rules of the job.
        report_interval_s: Interval of the monitors' reports.
        asked_s: Notice period that the job and its queue have for all notices.
    """
    return max(asked_s, WINDOWS_OF_NOTICE * window_s(rules, report_interval_s))


def too_short(rules: Idle, report_interval_s: float) -> str:
    """Return why `warn_after_s` is too short for the interval of reports; "" if it is long enough."""
    least_s = MIN_REPORTS * report_interval_s
    if rules.warn_after_s >= least_s:
        return ""
    return (
        f"{rules.warn_after_s:g} is too short: monitors report every {report_interval_s:g} s, and {MIN_REPORTS} "
        f"reports are needed to tell idle from busy; make it {least_s:g} or more, or have them report more often "
        "(mesos-gpu scheduler --report-interval)"
    )


def rules_for(rules: Idle, labels: Mapping[str, str], *, is_instance: bool) -> Idle:
    """Return the idle rules for a job: only reporting for exempt labels, and for instances unless `apps` is set."""
    exempt = any(
        key in labels and (not given or labels[key] == value)
        for key, given, value in (label.partition("=") for label in rules.exempt_labels)
    )
    return replace(rules, policy=IdlePolicy.REPORT) if exempt or (is_instance and not rules.apps) else rules


def verdict(cards: Iterable[Used], rules: Idle) -> Verdict:
    """Judge one window from all cards of a job; one card at work is enough for `WORKING`."""
    paused, unknown, is_empty = False, False, True
    for card in cards:
        is_empty = False
        if card.seen_ms <= 0 or 2 * card.seen_ms < card.elapsed_ms:
            unknown = True
        elif card.busy_ms >= RESUME_FACTOR * rules.busy_share * card.seen_ms:
            return Verdict.WORKING
        elif card.busy_ms > rules.busy_share * card.seen_ms:
            paused = True
    if is_empty or unknown:
        return Verdict.UNKNOWN
    return Verdict.PAUSED if paused else Verdict.IDLE


def advance(known: Idleness, rules: Idle, said: Verdict, ms: int, now: float) -> Idleness:
    """Return the idle state of a job after one window.

    A job gets at most as far as `WARNED` here. For the next state the caller uses `is_due` and `noticed`, depending on
    `rules.policy`.

    Args:
        known: State before the window.
        rules: Idle rules of the job.
        said: Activity in the window.
        ms: Length of the window in milliseconds.
        now: End of the window, seconds since the epoch.
    """
    if said is Verdict.UNKNOWN:
        return known
    known = replace(known, known_at=now)
    if said is Verdict.WORKING:
        resumed_ms = known.resumed_ms + ms
        if known.state is IdleState.ACTIVE or resumed_ms >= rules.resume_s * 1000:
            return forgotten(known, now)
        return replace(known, resumed_ms=resumed_ms)
    # Half of a window with occasional work counts: otherwise such work would postpone the end for ever.
    idle_ms = ms // 2 if said is Verdict.PAUSED else ms
    known = replace(known, idle_ms=known.idle_ms + idle_ms, resumed_ms=max(known.resumed_ms - idle_ms, 0))
    if known.state is IdleState.ACTIVE:
        known = replace(known, state=IdleState.SUSPECT, since=now - ms / 1000)
    if (
        known.state is IdleState.SUSPECT
        and rules.policy is not IdlePolicy.REPORT
        and _is_warned(known, rules)
    ):
        # Idle time beyond the threshold is dropped: the full time from warning to end starts now.
        return replace(known, state=IdleState.WARNED, since=now, idle_ms=round(rules.warn_after_s * 1000))
    return known


def _is_warned(known: Idleness, rules: Idle) -> bool:
    return known.idle_ms >= rules.warn_after_s * 1000


def is_due(known: Idleness, rules: Idle, lead: float) -> bool:
    """Return whether a warned job may be given notice now; `lead` is the seconds from the notice to the end."""
    if known.state is not IdleState.WARNED or rules.policy is IdlePolicy.REPORT or known.resumed_ms:
        return False
    return known.idle_ms > rules.warn_after_s * 1000 and known.idle_ms >= (rules.return_after_s - lead) * 1000


def noticed(known: Idleness, now: float) -> Idleness:
    """Return the idle state of a job that is given notice now."""
    return replace(known, state=IdleState.NOTICE, since=now)


def warned(known: Idleness, now: float) -> Idleness:
    """Return the idle state of a job whose notice was called off: it is only warned again."""
    return replace(known, state=IdleState.WARNED, since=now)


def returned(known: Idleness, now: float) -> Idleness:
    """Return the idle state of a job that is ended to take its GPUs back."""
    return replace(known, state=IdleState.RETURNED, since=now)


def forgotten(known: Idleness, now: float) -> Idleness:
    """Return the idle state of a job that is at work or kept: its idle time is reset."""
    return replace(known, state=IdleState.ACTIVE, since=now, idle_ms=0, resumed_ms=0)


def is_fresh(known: Idleness, now: float, window: float) -> bool:
    """Return whether the last observation of a job is recent; `window` is the length of a window in seconds."""
    return known.known_at >= now - _FRESH_WINDOWS * window


def may_end(
    known: Idleness, rules: Idle, notice_at: float, until: float, now: float, window: float
) -> bool | None:
    """Return whether a job is ended whose notice has run out.

    It is not ended while it has resumed work. `rules.resume_s` of work calls the notice off, and idle time in between
    is deducted from that work. A window that began before the notice does not count.

    Args:
        known: Idle state of the job.
        rules: Idle rules of the job.
        notice_at: Time of the notice, seconds since the epoch.
        until: Time at which the notice runs out.
        now: Current time, not before `until`.
        window: Length of a window in seconds.

    Returns:
        None if it is too early to decide, as too little was observed since the notice or the job is at work; False if
            that lasts too long, so the job goes on.
    """
    if rules.policy is IdlePolicy.REPORT:
        return False
    is_known = known.known_at >= notice_at + _MAX_WINDOWS * window and is_fresh(known, now, window)
    if is_known and not known.resumed_ms:
        return True
    wait_s = WINDOWS_OF_NOTICE * window + (rules.resume_s if is_known else 0)
    return None if now < until + wait_s else False
