"""What routes say of the use of cards, as types. null: nobody can say; that is never 0."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.schema import says

_Moment = Annotated[float, says(description="seconds since the epoch")]
_Count = Annotated[int, says(minimum=0)]
_Percent = Annotated[float, says(minimum=0, maximum=100)]
_Busy = Annotated[
    float, says(minimum=0, maximum=100, description="part of the last minute at work, in percent")
]


class Meters(TypedDict):
    """What the meters of a card showed at its host's latest look."""

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
    """How a GPU is used."""

    at: Annotated[float, says(description="when its host looked, by its clock; seconds since the epoch")]
    busy_pct: _Busy | None
    processes: _Count | None
    xid: Annotated[int, says(minimum=0, description="the latest one")] | None


class JobUse(TypedDict):
    """How a job uses the GPUs that it holds now."""

    busy_pct: (
        Annotated[float, says(minimum=0, maximum=100, description="as of a GPU, the mean of all")] | None
    )
    memory_mib: Annotated[int, says(minimum=0, description="of all together")] | None
    processes: _Count | None
    idle_s: (
        Annotated[float, says(minimum=0, description="for so long all were seen idle at each look")] | None
    )


class UseSeries(TypedDict):
    """Means over spans of time, oldest first; the last span is not over."""

    step_s: float
    until: _Moment
    busy_pct: list[_Percent | None]
    memory_mib: list[float | None]
    power_w: Annotated[list[float | None], says(description="of GPUs")]


class ClusterUse(TypedDict):
    """Use of all GPUs in the last day: means over spans of time, oldest first; the last span is not over."""

    step_s: float
    until: _Moment
    gpus_total: list[float | None]
    gpus_used: Annotated[list[float | None], says(description="allocated GPUs")]
    busy_pct: Annotated[list[_Percent | None], says(description="mean utilization of GPUs with samples")]
    power_w: Annotated[list[float | None], says(description="of GPUs with samples")]


class UseOverTime(TypedDict):
    """How something was used since its scheduler began, as far back as is kept."""

    fine: UseSeries
    coarse: UseSeries
