"""The window of launches under way on one agent: how many there may be, by how fast its executors register. Pure.

Launches are under way from ACCEPT until the first word of their executor. An agent that gets hundreds at once starts
none of them in time: Mesos ends an executor that has not registered within a minute (--executor_registration_timeout).
The window grows by one with each prompt registration, and is halved when one was slow, as TCP does (RFC 5681).
"""

from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.policy.queueing.backoff import delay_s

FIRST_SIZE: Final = 32
MIN_SIZE: Final = 8
PROBE_SIZE: Final = 4  # after executors have not registered in time
MAX_SIZE: Final = 512
PROMPT_S: Final = 10.0  # a registration that takes longer is slow: a sixth of Mesos' own limit
MIN_BACK_OFF_S: Final = 15.0
MAX_BACK_OFF_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Window:
    """How many launches may be under way on an agent.

    Attributes:
        size: The number; a whole number of launches fits in it.
        shrunk_at: When it shrank last, seconds since the epoch: launches made before say nothing new.
        back_offs: How often in a row executors of the agent have not registered in time.
        latest: When the latest launch was made of those whose executors have registered, seconds since the epoch.
    """

    size: float = FIRST_SIZE
    shrunk_at: float = 0.0
    back_offs: int = 0
    latest: float = 0.0


def registered(window: Window, launched_at: float, now: float, under_way: int) -> Window:
    """Return the window after an executor has registered.

    Args:
        window: The window before.
        launched_at: Time of that executor's launch, seconds since the epoch.
        now: Seconds since the epoch.
        under_way: Launches under way on the agent, this one included.
    """
    is_new = launched_at >= window.shrunk_at
    window = replace(window, latest=max(window.latest, launched_at))
    if now - launched_at > PROMPT_S:
        size = min(window.size, max(window.size / 2, MIN_SIZE))
        return replace(window, size=size, shrunk_at=now) if is_new else window
    back_offs = 0 if is_new else window.back_offs
    if 2 * under_way < window.size:  # a window that is not used says nothing of a larger one
        return replace(window, back_offs=back_offs)
    is_quick = now - launched_at <= PROMPT_S / 4
    size = min(window.size + (1 if is_quick else 1 / window.size), MAX_SIZE)
    return replace(window, size=size, back_offs=back_offs)


def timed_out(window: Window, now: float) -> tuple[Window, float]:
    """Return the window after executors have not registered in time, and until when the agent gets no launch."""
    back_offs = window.back_offs + 1
    wait_s = delay_s(back_offs, first_s=MIN_BACK_OFF_S, most_s=MAX_BACK_OFF_S)
    return replace(window, size=PROBE_SIZE, shrunk_at=now, back_offs=back_offs), now + wait_s
