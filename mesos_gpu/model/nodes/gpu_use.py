"""Meters of GPUs, and the work time of GPUs and of tasks on them. None stands for an unknown value; 0 never does."""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.ids import GpuId, TaskId

MAX_GPU_USES: Final = 64  # of a report; hosts have fewer GPUs
MAX_TASK_USES: Final = 256  # of a report, one for each task and GPU


@dataclass(frozen=True, slots=True)
class Meters:
    """Values that the meters of one GPU show at one time. None if the driver or the GPU does not report the value.

    Attributes:
        gpu_pct: Percentage of the driver's latest sample in which a kernel ran.
        memory_pct: Percentage of that sample in which memory was read or written.
        encoder_pct, decoder_pct: Use of the video engines.
        memory_used_mib, memory_free_mib, memory_reserved_mib: Memory of the GPU; the driver uses the reserved part
            itself.
        power_mw, power_limit_mw: Power drawn, and its limit.
        energy_mj: Energy used since the driver was loaded.
        temperature_c, memory_temperature_c: Temperatures in degrees Celsius.
        sm_clock_mhz, memory_clock_mhz: Clock rates of the multiprocessors and the memory.
        pcie_tx_kib_s, pcie_rx_kib_s: Throughput of the bus in KiB per second, measured by the driver over 20 ms.
        pcie_replays: Number of replays since the driver was loaded.
        nvlink_tx_kib, nvlink_rx_kib: Data over all links since the driver was loaded.
        correctable_rows, uncorrectable_rows: Memory rows remapped after correctable or uncorrectable errors.
        row_remap_failure: 1 if a row could not be remapped, else 0.
    """

    gpu_pct: int | None = None
    memory_pct: int | None = None
    encoder_pct: int | None = None
    decoder_pct: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    memory_reserved_mib: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    energy_mj: int | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    pcie_tx_kib_s: int | None = None
    pcie_rx_kib_s: int | None = None
    pcie_replays: int | None = None
    nvlink_tx_kib: int | None = None
    nvlink_rx_kib: int | None = None
    correctable_rows: int | None = None
    uncorrectable_rows: int | None = None
    row_remap_failure: int | None = None


UNKNOWN: Final = Meters()


@dataclass(frozen=True, slots=True)
class Work:
    """Work time, computed from time stamps of the driver's samples, so that the time between two readings counts too.

    Time without samples is in neither count: the difference between elapsed time and `seen_ms` is unknown.

    Attributes:
        since: Start of the count, seconds since the epoch. A different value means that the count restarted from 0.
        seen_ms: Time since then that samples cover, in milliseconds.
        busy_ms: Part of `seen_ms` with work; samples with partial work count partially.
    """

    since: float
    seen_ms: int = 0
    busy_ms: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the time between two readings that the driver's samples cover, in milliseconds."""

    seen_ms: int
    busy_ms: int


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Use of one GPU.

    Attributes:
        gpu_id: Id of the GPU.
        at: Time of the reading, seconds since the epoch.
        meters: Values of the meters at that time.
        work: Work time of the GPU; None if the driver has no samples.
        processes: Number of processes on the GPU; None if the driver does not report it.
        xid: Latest XID that the monitor received; None without one since the monitor's start.
    """

    gpu_id: GpuId
    at: float
    meters: Meters = UNKNOWN
    work: Work | None = None
    processes: int | None = None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class TaskUse:
    """Use of one GPU by one task that holds it, alone or in part. Processes are assigned to tasks by their cgroup.

    Attributes:
        task_id, gpu_id: Ids of the task and the GPU.
        at: Time of the reading, seconds since the epoch.
        processes: Number of the task's processes on the GPU.
        memory_mib: GPU memory of these processes.
        work: Work time of these processes.
        idle_since: Time since which every reading covered the task and showed no work; None if it works or is not
            covered.
    """

    task_id: TaskId
    gpu_id: GpuId
    at: float
    processes: int | None = None
    memory_mib: int | None = None
    work: Work | None = None
    idle_since: float | None = None


def between(before: Work | None, now: Work | None) -> Span | None:
    """Return the time covered between two counts; None if the later count does not continue the earlier one."""
    if before is None or now is None or before.since != now.since:
        return None
    seen_ms, busy_ms = now.seen_ms - before.seen_ms, now.busy_ms - before.busy_ms
    return Span(seen_ms, min(busy_ms, seen_ms)) if seen_ms >= 0 and busy_ms >= 0 else None


def busy_pct(before: Work | None, now: Work | None) -> float | None:
    """Return the percentage of the covered time between two counts that was work; None if unknown."""
    span = between(before, now)
    return 100 * span.busy_ms / span.seen_ms if span is not None and span.seen_ms else None
