"""Types of answers about utilization of GPUs. null means not known; that is never 0."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.schema import says

_Moment = Annotated[float, says(description="seconds since the epoch")]
_Count = Annotated[int, says(minimum=0)]
_Percent = Annotated[float, says(minimum=0, maximum=100)]
_Busy = Annotated[
    float,
    says(minimum=0, maximum=100, description="part of the last minute in which kernels ran, in percent"),
]


class Meters(TypedDict):
    """Values of a GPU's meters, as its host read them last."""

    gpu_pct: _Count | None
    memory_pct: _Count | None
    encoder_pct: _Count | None
    decoder_pct: _Count | None
    memory_used_mib: _Count | None
    memory_free_mib: _Count | None
    memory_reserved_mib: _Count | None
    power_mw: _Count | None
    power_limit_mw: _Count | None
    energy_mj: Annotated[int, says(minimum=0, description="since the driver was loaded")] | None
    temperature_c: _Count | None
    memory_temperature_c: _Count | None
    sm_clock_mhz: _Count | None
    memory_clock_mhz: _Count | None
    pcie_tx_kib_s: _Count | None
    pcie_rx_kib_s: _Count | None
    pcie_replays: _Count | None
    nvlink_tx_kib: Annotated[int, says(minimum=0, description="since the driver was loaded")] | None
    nvlink_rx_kib: _Count | None
    correctable_rows: _Count | None
    uncorrectable_rows: _Count | None
    row_remap_failure: _Count | None


class GpuUse(Meters):
    """Current use of a GPU."""

    at: Annotated[float, says(description="time of the sample by the host's clock, seconds since the epoch")]
    busy_pct: _Busy | None
    processes: _Count | None
    xid: Annotated[int, says(minimum=0, description="latest XID error")] | None


class JobUse(TypedDict):
    """Current use of a job's GPUs."""

    busy_pct: (
        Annotated[
            float,
            says(
                minimum=0,
                maximum=100,
                description="mean of all its GPUs: part of the last minute in which kernels ran, in percent",
            ),
        ]
        | None
    )
    memory_mib: Annotated[int, says(minimum=0, description="sum of all its GPUs")] | None
    processes: _Count | None
    idle_s: (
        Annotated[float, says(minimum=0, description="time for which all its GPUs were idle in each sample")]
        | None
    )


class UseSeries(TypedDict):
    """Means over time steps, oldest first; the last step is incomplete."""

    step_s: float
    until: _Moment
    busy_pct: list[_Percent | None]
    memory_mib: list[float | None]
    power_w: Annotated[list[float | None], says(description="power of GPUs")]


class ClusterUse(TypedDict):
    """Utilization of all GPUs in the last day: means over time steps, oldest first; the last step is incomplete."""

    step_s: float
    until: _Moment
    gpus_total: list[float | None]
    gpus_used: Annotated[list[float | None], says(description="allocated GPUs")]
    busy_pct: Annotated[list[_Percent | None], says(description="mean utilization of GPUs with samples")]
    power_w: Annotated[list[float | None], says(description="power of GPUs with samples")]


class UseOverTime(TypedDict):
    """Utilization since the scheduler began, as far back as it is stored."""

    fine: UseSeries
    coarse: UseSeries
