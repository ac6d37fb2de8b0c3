"""Health readings of GPUs, and the health history that a node monitor keeps."""

from dataclasses import dataclass

from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.gpu_use import UNKNOWN, Meters, Span


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of a GPU. None if the driver or the GPU does not support a query, which is not a fault."""

    gpu: Gpu  # its properties; health, reason, since, warnings and history are unset here
    lost: bool = False  # fallen off the bus
    unreadable: str = ""  # reason why a part could not be read; properties may then be placeholders
    reset_required: str = ""  # reason why the driver refuses work until a reset; "" if it does not
    xids: tuple[int, ...] = ()  # XIDs since the previous reading
    recovery_action: int | None = None  # NVML_GPU_RECOVERY_ACTION_*
    uncorrectable_ecc: int | None = None  # errors since the driver was loaded
    remapped_rows_pending: bool | None = None
    row_remapping_failed: bool | None = None
    retired_pages_pending: bool | None = None
    clocks_event_reasons: int | None = None  # bits, nvmlClocksEventReason*
    pids: tuple[int, ...] | None = None  # processes on the GPU: compute, graphics, MPS
    # Pid and memory of these processes, as far as reported.
    process_mib: tuple[tuple[int, int], ...] | None = None
    meters: Meters = UNKNOWN
    span: Span | None = None  # samples since the previous reading; None without samples or previous reading
    # Work within `span`, by pid; processes not listed did no work.
    process_busy_ms: tuple[tuple[int, int], ...] | None = None
    # Reason why the reported properties are not credible, independent of the GPU's health.
    misdescribed: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """A reading of all GPUs of a host."""

    readings: tuple[Reading, ...] = ()
    source: str = "none"  # "nvml", "simulated", or "none" without a driver
    driver_version: str | None = None
    cuda_version: str | None = None  # the newest CUDA that the driver can run, "12.2"
    note: str = ""  # reason why no GPUs are listed


@dataclass(frozen=True, slots=True)
class CardHealth:
    """Health history of one GPU in the monitor. Times are seconds since the epoch.

    `gpu` is reported to the scheduler: its health is `state`, unless overridden (dirty, unknown).
    """

    gpu: Gpu
    state: Health = Health.UNKNOWN  # ok, suspect, sick, lost; unknown before the first reading
    why: str = ""  # reason for the state
    bad: int = 0  # number of soft faults since it was ok
    clean: int = 0  # number of successive readings without fault, while suspect
    times_sick: int = 0  # number of times that it became sick or lost, without long healthy periods between
    sick_at: float = 0.0  # last time that it became sick or lost
    recheck_at: float = 0.0  # time at which it becomes suspect again if no fault occurs before
    latched: bool = False  # whether it stays out until an operator resets it
    uncorrectable_ecc: int | None = None  # as last read
    notes: tuple[tuple[float, str], ...] = ()  # times and texts of warnings that are kept for a while
    resets: tuple[str, ...] = ()  # latest reset requests that were executed
