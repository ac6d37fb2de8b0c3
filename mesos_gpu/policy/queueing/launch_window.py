"""Launch window of one agent: the largest number of launches under way, adapted to registration times. Pure.

A launch is under way from ACCEPT until the first status update of its executor. An agent that gets hundreds of launches
at once starts none of them in time: Mesos ends an executor that has not registered within a minute
(--executor_registration_timeout). Like the congestion window of TCP (RFC 5681), the launch window grows with each
prompt registration and is halved after a slow one.
"""

from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.policy.queueing.backoff import delay_s

FIRST_SIZE: Final = 32
MIN_SIZE: Final = 8
PROBE_SIZE: Final = 4  # size after an executor has not registered in time
MAX_SIZE: Final = 512
PROMPT_S: Final = 10.0  # a registration that takes longer is slow: a sixth of Mesos' own limit
MIN_BACK_OFF_S: Final = 15.0
MAX_BACK_OFF_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Window:
    """Launch window of an agent.

    Attributes:
        size: Largest number of launches under way, rounded down where launches are counted.
        shrunk_at: Time of the last reduction, in seconds since the epoch; earlier launches do not reduce it again.
        back_offs: Number of consecutive back-offs because executors did not register in time.
        backed_off_at: Begin of the last back-off, in seconds since the epoch; timeouts of earlier launches begin no
            other one.
        latest: Launch time of the newest registered executor, in seconds since the epoch.
    """

    size: float = FIRST_SIZE
    shrunk_at: float = 0.0
    back_offs: int = 0
    backed_off_at: float = 0.0
    latest: float = 0.0


def registered(window: Window, launched_at: float, now: float, under_way: int) -> Window:
    """Return the window after an executor has registered.

    Args:
        window: Window before the registration.
        launched_at: Time of that executor's launch, in seconds since the epoch.
        now: Time of the registration, in seconds since the epoch.
        under_way: Number of launches under way on the agent, including that executor's.
    """
    is_new, size = launched_at >= window.shrunk_at, window.size
    shrunk_at, back_offs = window.shrunk_at, window.back_offs
    if now - launched_at > PROMPT_S:
        if is_new:
            size, shrunk_at = min(size, max(size / 2, MIN_SIZE)), now
    else:
        back_offs = 0 if is_new else back_offs
        if 2 * under_way >= size:  # grow only a window that is used by half or more
            size = min(size + (1 if now - launched_at <= PROMPT_S / 4 else 1 / size), MAX_SIZE)
    return Window(size, shrunk_at, back_offs, window.backed_off_at, max(window.latest, launched_at))


def timed_out(window: Window, now: float) -> tuple[Window, float]:
    """Return the window after executors have not registered in time, and the end of the back-off.

    Args:
        window: Window before the timeout.
        now: Time of the timeout, in seconds since the epoch.

    Returns:
        The window, and the time before which the agent gets no launch, in seconds since the epoch.
    """
    back_offs = window.back_offs + 1
    wait_s = delay_s(back_offs, first_s=MIN_BACK_OFF_S, most_s=MAX_BACK_OFF_S)
    window = replace(window, size=PROBE_SIZE, shrunk_at=now, back_offs=back_offs, backed_off_at=now)
    return window, now + wait_s
