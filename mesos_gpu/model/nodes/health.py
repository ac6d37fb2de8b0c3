"""What a probe reads of a card's health, and what the node monitor remembers of it."""

from dataclasses import dataclass

from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.gpu_use import UNKNOWN, Meters, Span


@dataclass(frozen=True, slots=True)
class Reading:
    """A GPU, read once. None: the driver or the card does not have the query, which is no sickness."""

    gpu: Gpu  # its facts; health, reason, since, warnings and history mean nothing here
    lost: bool = False  # fallen off the bus
    unreadable: str = ""  # why it, or a part of it, could not be read; the facts may then be placeholders
    reset_required: str = ""  # the driver refuses work until a reset, and why
    xids: tuple[int, ...] = ()  # since the reading before
    recovery_action: int | None = None  # NVML_GPU_RECOVERY_ACTION_*
    uncorrectable_ecc: int | None = None  # errors since the driver was loaded
    remapped_rows_pending: bool | None = None
    row_remapping_failed: bool | None = None
    retired_pages_pending: bool | None = None
    clocks_event_reasons: int | None = None  # bits, nvmlClocksEventReason*
    pids: tuple[int, ...] | None = None  # processes on it: compute, graphics, MPS
    process_mib: tuple[tuple[int, int], ...] | None = None  # of those, pid and memory, as far as it tells
    meters: Meters = UNKNOWN
    span: Span | None = None  # since the look before; None: it has no samples, or there was no look
    process_busy_ms: tuple[tuple[int, int], ...] | None = (
        None  # of that span, by pid; who is not named did nothing
    )
    misdescribed: str = ""  # why what describes it cannot be believed, which says nothing of the card


@dataclass(frozen=True, slots=True)
class Survey:
    """All GPUs of a host, read once."""

    readings: tuple[Reading, ...] = ()
    source: str = "none"  # "nvml", "simulated"; "none": there is no driver
    driver_version: str | None = None
    cuda_version: str | None = None  # the newest CUDA that the driver can run, "12.2"
    note: str = ""  # why there are none


@dataclass(frozen=True, slots=True)
class CardHealth:
    """What the monitor remembers of one card. Times are seconds since the epoch.

    `gpu` is what is reported: its health is `state`, or what lies over it (dirty, unknown).
    """

    gpu: Gpu
    state: Health = Health.UNKNOWN  # ok, suspect, sick, lost; unknown: never read
    why: str = ""  # of the state
    bad: int = 0  # soft faults since it was ok
    clean: int = 0  # readings without a fault in a row, while suspect
    times_sick: int = 0  # how often it turned sick or lost, with no long peace between
    sick_at: float = 0.0  # when it last did
    recheck_at: float = 0.0  # without a fault until then, it is on its way back
    latched: bool = False  # out until an operator resets it
    uncorrectable_ecc: int | None = None  # as last read
    notes: tuple[tuple[float, str], ...] = ()  # when and what: warnings that stay for a while
    resets: tuple[str, ...] = ()  # the latest requests for a reset that were taken up
