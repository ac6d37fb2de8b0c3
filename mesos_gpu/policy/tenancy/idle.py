"""When GPUs that do nothing come back. Pure.

Time goes by in windows, and only what is known of them counts. A window in which nobody can say what the GPUs did moves
nothing, whatever a job has been told.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tenancy import Idle, IdlePolicy

RESUME_FACTOR: Final = 2  # times `busy_share`: a job at work for so much of a window counts as back
MIN_REPORTS: Final = 3  # of a monitor, before anybody is warned by them
MAX_WINDOW_S: Final = 60.0
WINDOWS_OF_NOTICE: Final = (
    3  # between a notice and the end, at least: in one of them is seen whether it wakes
)
_FRESH_WINDOWS: Final = (
    2  # what is known of a job's GPUs is of this moment if it is no older: the latest is not over
)
_MAX_WINDOWS: Final = 2  # so long is one at most whose reports come in time: it is over with one of them
_PARTS: Final = 10  # windows until a warning


class Used(NamedTuple):
    """What is known of one card's work for a job in a window, in milliseconds."""

    elapsed_ms: int
    seen_ms: int
    busy_ms: int


class Verdict(Enum):
    """What a window says of a job."""

    IDLE = "idle"
    PAUSED = "paused"  # at work now and then: more than idle, and not back at work; half of it counts as idle
    WORKING = "working"
    UNKNOWN = "unknown"


def window_s(rules: Idle, report_interval_s: float) -> float:
    """How long a window is: of several reports where there is time, so that work now and then is seen as such."""
    return max(report_interval_s, min(MAX_WINDOW_S, rules.warn_after_s / _PARTS))


def lead_s(rules: Idle, report_interval_s: float, asked_s: float) -> float:
    """Seconds from a notice to the end. `asked_s`: as the job and its queue have it for all notices."""
    return max(asked_s, WINDOWS_OF_NOTICE * window_s(rules, report_interval_s))


def too_short(rules: Idle, report_interval_s: float) -> str:
    """Why nobody can be warned so early; "": all can."""
    least_s = MIN_REPORTS * report_interval_s
    if rules.warn_after_s >= least_s:
        return ""
    return (
        f"{rules.warn_after_s:g} is too short: monitors report every {report_interval_s:g} s, and {MIN_REPORTS} "
        f"reports are needed to tell idle from busy; make it {least_s:g} or more, or have them report more often "
        "(mesos-gpu scheduler --report-interval)"
    )


def rules_for(rules: Idle, labels: Mapping[str, str], *, is_instance: bool) -> Idle:
    """The rules, as they are for a job with these labels, or for an app's instance."""
    exempt = any(
        key in labels and (not given or labels[key] == value)
        for key, given, value in (each.partition("=") for each in rules.exempt_labels)
    )
    return replace(rules, policy=IdlePolicy.REPORT) if exempt or (is_instance and not rules.apps) else rules


def verdict(cards: Iterable[Used], rules: Idle) -> Verdict:
    """What a window says of all cards of all members of a job: one that is at work is enough."""
    paused, unknown, none = False, False, True
    for card in cards:
        none = False
        if card.seen_ms <= 0 or 2 * card.seen_ms < card.elapsed_ms:
            unknown = True
        elif card.busy_ms >= RESUME_FACTOR * rules.busy_share * card.seen_ms:
            return Verdict.WORKING
        elif card.busy_ms > rules.busy_share * card.seen_ms:
            paused = True
    if none or unknown:
        return Verdict.UNKNOWN
    return Verdict.PAUSED if paused else Verdict.IDLE


def advance(known: Idleness, rules: Idle, said: Verdict, ms: int, now: float) -> Idleness:
    """What is remembered after a window.

    Nobody goes further than to `warned` by this; who is due then is `noticed`, for whatever reason `rules.policy`
    allows.

    Args:
        known: What was remembered before it.
        rules: Those of the job.
        said: What the window says.
        ms: How long it was.
        now: When it ended, seconds since the epoch.
    """
    if said is Verdict.UNKNOWN:
        return known
    known = replace(known, known_at=now)
    if said is Verdict.WORKING:
        resumed_ms = known.resumed_ms + ms
        if known.state is IdleState.ACTIVE or resumed_ms >= rules.resume_s * 1000:
            return forgotten(known, now)
        return replace(known, resumed_ms=resumed_ms)
    idle_ms = (
        ms // 2 if said is Verdict.PAUSED else ms
    )  # else work now and then would put off the end for ever
    known = replace(known, idle_ms=known.idle_ms + idle_ms, resumed_ms=max(known.resumed_ms - idle_ms, 0))
    if known.state is IdleState.ACTIVE:
        known = replace(known, state=IdleState.SUSPECT, since=now - ms / 1000)
    if (
        known.state is IdleState.SUSPECT
        and rules.policy is not IdlePolicy.REPORT
        and _is_warned(known, rules)
    ):
        # What was idle beyond that does not count: from the warning on a job has all of its time.
        return replace(known, state=IdleState.WARNED, since=now, idle_ms=round(rules.warn_after_s * 1000))
    return known


def _is_warned(known: Idleness, rules: Idle) -> bool:
    return known.idle_ms >= rules.warn_after_s * 1000


def is_due(known: Idleness, rules: Idle, lead: float) -> bool:
    """Whether a job that was warned may be given notice now. `lead`: seconds from the notice to the end."""
    if known.state is not IdleState.WARNED or rules.policy is IdlePolicy.REPORT or known.resumed_ms:
        return False
    return known.idle_ms > rules.warn_after_s * 1000 and known.idle_ms >= (rules.return_after_s - lead) * 1000


def noticed(known: Idleness, now: float) -> Idleness:
    """What is remembered of a job that has notice from now on."""
    return replace(known, state=IdleState.NOTICE, since=now)


def warned(known: Idleness, now: float) -> Idleness:
    """What is remembered of a job whose notice was called off: it stands where it was warned."""
    return replace(known, state=IdleState.WARNED, since=now)


def returned(known: Idleness, now: float) -> Idleness:
    """What is remembered of a job that is ended."""
    return replace(known, state=IdleState.RETURNED, since=now)


def forgotten(known: Idleness, now: float) -> Idleness:
    """What is remembered of a job that is at work, or kept: nothing of its idleness."""
    return replace(known, state=IdleState.ACTIVE, since=now, idle_ms=0, resumed_ms=0)


def is_fresh(known: Idleness, now: float, window: float) -> bool:
    """Whether what is known of a job is of this moment. `window`: how long one is, in seconds."""
    return known.known_at >= now - _FRESH_WINDOWS * window


def may_end(
    known: Idleness, rules: Idle, notice_at: float, until: float, now: float, window: float
) -> bool | None:
    """Whether a job whose notice has run out is ended.

    Not while it has been at work since, less what it was idle meanwhile: that ends with `rules.resume_s` of work, which
    calls the notice off, or by idle time that uses it up. A window that began before the notice does not count.

    Args:
        known: What is remembered of it.
        rules: Those of the job.
        notice_at: When it was given notice.
        until: When that has run out.
        now: Not before that.
        window: How long one is, in seconds.

    Returns:
        None: not yet, as too little is known of it since, or it is at work; False: nobody knows what it does, or it is
        at work every other while, so it goes on.
    """
    if rules.policy is IdlePolicy.REPORT:
        return False
    is_known = known.known_at >= notice_at + _MAX_WINDOWS * window and is_fresh(known, now, window)
    if is_known and not known.resumed_ms:
        return True
    wait_s = WINDOWS_OF_NOTICE * window + (rules.resume_s if is_known else 0)
    return None if now < until + wait_s else False
