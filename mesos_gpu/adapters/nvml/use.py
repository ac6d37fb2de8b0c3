"""Use of a card from NVML: its meters, and the busy time of the card and its processes since the previous reading.

No failure here is a fault of the card: values that a driver does not report are unknown, and `health` finds faults.
Source of the calls' meaning: NVIDIA's NVML API reference, "Device Queries".
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.model.nodes.gpu_use import Meters, Span
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.policy.gpus.use import shares_of_span, span_of

_ALL_LINKS: Final = 0xFFFFFFFF  # scope of a field: the sum of all NVLinks
_NOT_AVAILABLE: Final = (1 << 32) - 1  # returned by some drivers in place of an error


class UseReader:
    """Reader of cards' use that remembers which samples of each card it has counted.

    Args:
        nvml: The pynvml module, or a fake of it.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._counted_us: dict[str, int] = {}  # time stamp of the latest sample, by UUID

    def read(self, reading: Reading, handle: Any) -> Reading:
        """Return the reading with all that is known of the card's use."""
        last_us = self._counted_us.get(reading.gpu.id, 0)
        span = self._span(reading.gpu.id, handle, last_us)
        processes = self._processes(handle, last_us, span)
        busy_ms = None if processes is None else tuple(sorted(processes.items()))
        return replace(reading, meters=self._meters(handle), span=span, process_busy_ms=busy_ms)

    def _meters(self, handle: Any) -> Meters:
        """Return the current meters of a card, None for those that it does not have."""
        nvml, ask = self._nvml, self._ask
        rates, memory = ask(handle, "UtilizationRates"), self._memory(handle)
        encoder, decoder = ask(handle, "EncoderUtilization"), ask(handle, "DecoderUtilization")
        rows = ask(handle, "RemappedRows")
        fields = self._fields(handle)
        return Meters(
            gpu_pct=_number(getattr(rates, "gpu", None)),
            memory_pct=_number(getattr(rates, "memory", None)),
            encoder_pct=_number(encoder[0]) if encoder else None,
            decoder_pct=_number(decoder[0]) if decoder else None,
            memory_used_mib=_mib(memory, "used"),
            memory_free_mib=_mib(memory, "free"),
            memory_reserved_mib=_mib(memory, "reserved"),
            power_mw=_number(ask(handle, "PowerUsage")),
            power_limit_mw=_number(ask(handle, "EnforcedPowerLimit")),
            energy_mj=_number(ask(handle, "TotalEnergyConsumption"), most=1 << 53),
            temperature_c=_number(ask(handle, "Temperature", nvml.NVML_TEMPERATURE_GPU)),
            memory_temperature_c=fields["MEMORY_TEMP"],
            sm_clock_mhz=_number(ask(handle, "ClockInfo", nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=_number(ask(handle, "ClockInfo", nvml.NVML_CLOCK_MEM)),
            pcie_tx_kib_s=_number(ask(handle, "PcieThroughput", nvml.NVML_PCIE_UTIL_TX_BYTES)),
            pcie_rx_kib_s=_number(ask(handle, "PcieThroughput", nvml.NVML_PCIE_UTIL_RX_BYTES)),
            pcie_replays=_number(ask(handle, "PcieReplayCounter")),
            nvlink_tx_kib=fields["NVLINK_THROUGHPUT_DATA_TX"],
            nvlink_rx_kib=fields["NVLINK_THROUGHPUT_DATA_RX"],
            correctable_rows=_number(rows[0]) if rows else None,
            uncorrectable_rows=_number(rows[1]) if rows else None,
            row_remap_failure=_number(int(rows[3])) if rows else None,
        )

    def _memory(self, handle: Any) -> Any:
        """Query version 2, which reports reserved memory separately; version 1 counts it as used."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        newer = self._ask(handle, "MemoryInfo", version) if version is not None else None
        return newer if newer is not None else self._ask(handle, "MemoryInfo")

    def _fields(self, handle: Any) -> dict[str, int | None]:
        """Return values that only nvmlDeviceGetFieldValues has.

        Each is queried by itself, because an unknown field would make the whole query fail.
        """
        scopes = {
            "MEMORY_TEMP": 0,
            "NVLINK_THROUGHPUT_DATA_TX": _ALL_LINKS,
            "NVLINK_THROUGHPUT_DATA_RX": _ALL_LINKS,
        }
        return {name: self._field(handle, name, scope) for name, scope in scopes.items()}

    def _field(self, handle: Any, name: str, scope: int) -> int | None:
        nvml = self._nvml
        field = getattr(nvml, f"NVML_FI_DEV_{name}", None)
        values = None if field is None else self._ask(handle, "FieldValues", [(field, scope)])
        if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:
            return None
        return _number(_of_union(nvml, values[0].valueType, values[0].value), most=1 << 53)

    def _span(self, uuid: str, handle: Any, last_us: int) -> Span | None:
        """Return observed and busy time from samples since the previous reading; None without samples, or at first."""
        answer = self._ask(handle, "Samples", self._nvml.NVML_GPU_UTILIZATION_SAMPLES, last_us)
        if answer is None:
            return Span(0, 0) if last_us and self._is_silent(handle) else None
        kind, samples = answer
        values = [(int(s.timeStamp), _of_union(self._nvml, kind, s.sampleValue)) for s in samples]
        span, self._counted_us[uuid] = span_of([(at, v) for at, v in values if v is not None], last_us)
        return span if last_us else None

    def _is_silent(self, handle: Any) -> bool:
        """Return whether the driver still reads the card, so that there is only no new sample yet."""
        return self._ask(handle, "UtilizationRates") is not None

    def _processes(self, handle: Any, last_us: int, span: Span | None) -> dict[int, int] | None:
        """Return the busy time of each process in the span, in milliseconds; None if the driver does not report it."""
        if span is None:
            return None
        samples: Sequence[Any] | None = self._ask(handle, "ProcessUtilization", last_us)
        if samples is None:
            return None
        fresh = [sample for sample in samples if sample.timeStamp > last_us]
        return shares_of_span(span, [(int(sample.pid), int(sample.smUtil)) for sample in fresh])

    def _ask(self, handle: Any, query: str, *arguments: Any) -> Any:
        """Return the answer of nvmlDeviceGet<query>; None if it fails for any reason."""
        call = getattr(self._nvml, f"nvmlDeviceGet{query}", None)
        if call is None:
            return None
        try:
            return call(handle, *arguments)
        except self._nvml.NVMLError:
            return None


def _number(value: Any, *, most: int = _NOT_AVAILABLE) -> int | None:
    return int(value) if value is not None and 0 <= int(value) < most else None


def _mib(memory: Any, name: str) -> int | None:
    amount = getattr(memory, name, None)
    return None if amount is None else int(amount) >> 20


def _of_union(nvml: Any, kind: int, value: Any) -> int | None:
    """Return the member of an nvmlValue_t that its type selects; None for an unknown type."""
    members = {
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }
    member = members.get(kind)
    return int(getattr(value, member)) if member else None
