"""Faults of GPUs in the double of NVML: errors of memory, slow clocks, and events."""

import time
from types import SimpleNamespace
from typing import Any

import pynvml

from tests.doubles.nvml.state import State


class FakeFaults(State):
    """Calls of NVML for faults and events; `FakeNvml` has the keys of the state."""

    _told: int  # number of events that a wait has returned

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        """Return remapped rows: correctable, uncorrectable, pending, failed."""
        corrected, uncorrected, pending, failure = self._fact(handle, "rows")
        return corrected, uncorrected, pending, failure

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: int) -> int:
        """Return 1 if pages wait to be retired, else 0."""
        return int(self._fact(handle, "retired"))

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        """Return the number of uncorrected ECC errors since the driver was loaded."""
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return int(self._fact(handle, "ecc"))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        """Fail as a driver before 535, which has only the older function."""
        del handle
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        """Return the reasons of slow clocks as bits."""
        return int(self._fact(handle, "clocks"))

    def nvmlEventSetCreate(self) -> str:
        """Create the one set of events that there is."""
        self._told = len(self._now().get("events", ()))
        return "set"

    def nvmlDeviceGetSupportedEventTypes(self, handle: int) -> int:
        """Return the bit of XID events, the only ones."""
        self._optional(handle)
        return int(pynvml.nvmlEventTypeXidCriticalError)

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: str) -> None:
        """Register for a card's events, which are those of all cards."""
        assert events == "set"
        assert kinds & pynvml.nvmlEventTypeXidCriticalError
        self._well(handle)

    def nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> Any:
        """Return the next XID event, or fail after the timeout."""
        assert events == "set"
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            told = self._now().get("events", ())
            if len(told) > self._told:
                uuid, xid = told[self._told]
                self._told += 1
                kind = pynvml.nvmlEventTypeXidCriticalError
                return SimpleNamespace(device=uuid, eventType=kind, eventData=xid)
            time.sleep(0.02)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
