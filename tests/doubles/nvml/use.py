"""Utilization, power and temperature in the double of NVML."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pynvml

from tests.doubles.nvml.state import State


class FakeUse(State):
    """Calls of NVML for use of cards. Keys of a card's state, of which each may be missing:

    - `gpu_pct`, `memory_pct`, `encoder_pct`, `decoder_pct`, `power_mw`, `power_limit_mw`, `energy_mj`,
      `temperature_c`, `sm_clock_mhz`, `memory_clock_mhz`, `pcie_tx_kib_s`, `pcie_rx_kib_s`, `pcie_replays`
    - `memory_temperature_c`, `nvlink_tx_kib`, `nvlink_rx_kib`: values for nvmlDeviceGetFieldValues
    - `samples`: [microseconds, percent] pairs; `process_samples`: [pid, microseconds, percent]
    """

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        """Return percent of compute and of memory."""
        return SimpleNamespace(gpu=self._fact(handle, "gpu_pct"), memory=self._fact(handle, "memory_pct"))

    def nvmlDeviceGetEncoderUtilization(self, handle: int) -> list[int]:
        """Return percent, and the sampling period in microseconds."""
        return [self._fact(handle, "encoder_pct"), 167000]

    def nvmlDeviceGetDecoderUtilization(self, handle: int) -> list[int]:
        """Return percent, and the sampling period in microseconds."""
        return [self._fact(handle, "decoder_pct"), 167000]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return int(self._fact(handle, "power_mw"))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return int(self._fact(handle, "power_limit_mw"))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return int(self._fact(handle, "energy_mj"))

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        """Return degrees Celsius."""
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return int(self._fact(handle, "temperature_c"))

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        """Return a clock in MHz."""
        names = {pynvml.NVML_CLOCK_SM: "sm_clock_mhz", pynvml.NVML_CLOCK_MEM: "memory_clock_mhz"}
        return int(self._fact(handle, names[kind]))

    def nvmlDeviceGetPcieThroughput(self, handle: int, counter: int) -> int:
        """Return KiB per second."""
        sent = counter == pynvml.NVML_PCIE_UTIL_TX_BYTES
        assert sent or counter == pynvml.NVML_PCIE_UTIL_RX_BYTES
        return int(self._fact(handle, "pcie_tx_kib_s" if sent else "pcie_rx_kib_s"))

    def nvmlDeviceGetPcieReplayCounter(self, handle: int) -> int:
        return int(self._fact(handle, "pcie_replays"))

    def nvmlDeviceGetSamples(self, handle: int, kind: int, last_us: int) -> tuple[int, list[Any]]:
        """Return samples after a time stamp; fails if there are none."""
        assert kind == pynvml.NVML_GPU_UTILIZATION_SAMPLES
        samples = [
            SimpleNamespace(timeStamp=at, sampleValue=SimpleNamespace(uiVal=pct))
            for at, pct in self._fact(handle, "samples")
            if at > last_us
        ]
        if not samples:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return int(pynvml.NVML_VALUE_TYPE_UNSIGNED_INT), samples

    def nvmlDeviceGetProcessUtilization(self, handle: int, last_us: int) -> list[Any]:
        """Return samples of processes after a time stamp; fails if there are none."""
        samples = [
            SimpleNamespace(pid=pid, timeStamp=at, smUtil=pct)
            for pid, at, pct in self._fact(handle, "process_samples")
            if at > last_us
        ]
        if not samples:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return samples

    def _use_fields(self, handle: int, fields: Sequence[Any]) -> list[Any]:
        """Return values of fields with scopes; a field that the card lacks has an error instead of a value."""
        self._optional(handle)
        names = {
            (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0): "memory_temperature_c",
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF): "nvlink_tx_kib",
            (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 0xFFFFFFFF): "nvlink_rx_kib",
        }
        values = []
        for field in fields:
            amount = self._card(handle).get(names[field])
            answer = pynvml.NVML_ERROR_NOT_SUPPORTED if amount is None else pynvml.NVML_SUCCESS
            kind, value = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, SimpleNamespace(ullVal=amount)
            values.append(SimpleNamespace(nvmlReturn=answer, valueType=kind, value=value))
        return values
