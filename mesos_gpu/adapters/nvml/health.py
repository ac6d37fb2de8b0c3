"""Health of a card from NVML: readings and events.

Source of the calls' meaning: NVIDIA's NVML API reference, "Device Queries", "Event Handling Methods".
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.health import Reading

EVENTS_S: Final = 1.0  # longest wait for one event
#: Kinds of events after which a card is read at once, if it supports them (nvmlEventType*).
_KINDS: Final = (
    "XidCriticalError", "DoubleBitEccError", "SingleBitEccErrorStorm", "DramRetirementEvent",
    "DramRetirementFailure", "FatalPoisonError", "NonFatalPoisonError", "GpuUnavailableError", "GpuRecoveryAction",
)  # fmt: skip


_MIB: Final = 1 << 20
_NOT_AVAILABLE: Final = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE, where the binding passes it on


class Look:
    """Health queries of a card: a failed query is recorded as a problem of the card, and later queries still run."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._lost, self._reset = False, ""
        self._problems: list[str] = []

    def needed(self, what: str, query: str) -> Any:
        """Return the answer of an essential query; None, with a problem of the card recorded, if it fails."""
        value = self.optional(query)
        if value is None and not self._problems:
            self._problems.append(f"the driver does not report its {what}")
        return value

    def optional(self, query: str, *arguments: Any) -> Any:
        """Return the answer of nvmlDeviceGet<query>; None if binding, driver or card do not support it, or it fails."""
        nvml = self._nvml
        call = getattr(nvml, f"nvmlDeviceGet{query}", None)
        if call is None:
            return None
        try:
            return call(self._handle, *arguments)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                self._lost = True
            elif error.value == nvml.NVML_ERROR_RESET_REQUIRED:
                self._reset = "the driver says that it needs a reset"
            elif error.value not in _harmless(nvml):
                self._problems.append(str(error))
            return None

    def reading(self, gpu: Gpu) -> Reading:
        """Return the reading with all that is known of the card's health."""
        nvml = self._nvml
        rows = self.optional("RemappedRows")
        retired = self.optional("RetiredPagesPendingStatus")
        ecc = self.optional("TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        action, processes, clocks = self._recovery_action(), self._processes(), self._clocks()
        return Reading(
            gpu=gpu,
            lost=self._lost,
            unreadable="; ".join(dict.fromkeys(self._problems)),
            reset_required=self._reset,
            recovery_action=action,
            uncorrectable_ecc=ecc,
            remapped_rows_pending=None if rows is None else bool(rows[2]),
            row_remapping_failed=None if rows is None else bool(rows[3]),
            retired_pages_pending=None if retired is None else bool(retired),
            clocks_event_reasons=clocks,
            pids=None if processes is None else tuple(sorted(processes)),
            process_mib=_known_memory(processes),
        )

    def _recovery_action(self) -> int | None:
        nvml = self._nvml
        field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)  # not in older bindings
        values = self.optional("FieldValues", [field]) if field else None
        if not values or values[0].nvmlReturn != nvml.NVML_SUCCESS:  # an older driver does not know the field
            return None
        return int(values[0].value.uiVal)

    def _clocks(self) -> int | None:
        """Return the clocks' event reasons by the newer name of the query, or else by the older one."""
        reasons = self.optional("CurrentClocksEventReasons")
        if reasons is None:
            reasons = self.optional("CurrentClocksThrottleReasons")
        return None if reasons is None else int(reasons)

    def _processes(self) -> dict[int, int | None] | None:
        """Return the memory in MiB of each process on the card, None where the driver does not report it.

        There is no result (None) if the driver does not report processes at all.
        """
        memory_mib: dict[int, int | None] = {}
        is_known = False
        for kind in ("Compute", "Graphics", "MPSCompute"):
            for version in ("_v3", "_v2"):  # drivers before 510 have only the latter
                processes = self.optional(f"{kind}RunningProcesses{version}")
                if processes is not None:
                    is_known = True
                    for process in processes:
                        memory_mib[process.pid] = _more(memory_mib.get(process.pid), _mib_of(process))
                    break
        return memory_mib if is_known else None


def _known_memory(processes: Mapping[int, int | None] | None) -> tuple[tuple[int, int], ...] | None:
    reported = [(pid, mib) for pid, mib in sorted((processes or {}).items()) if mib is not None]
    return tuple(reported) if reported or processes == {} else None


def _mib_of(process: Any) -> int | None:
    """Return a process' memory; None in MIG mode, without rights for others' processes, and under WDDM."""
    used = getattr(process, "usedGpuMemory", None)
    return None if used is None or used >= _NOT_AVAILABLE else -(-int(used) // _MIB)


def _more(first: int | None, second: int | None) -> int | None:
    """Return the larger value: a process may be in several lists, each with all of its memory."""
    return second if first is None else first if second is None else max(first, second)


#: NVML_ERROR_*: the query is not supported or not permitted; INSUFFICIENT_SIZE: processes were added meanwhile.
_HARMLESS: Final = (
    "NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION", "ARGUMENT_VERSION_MISMATCH", "DEPRECATED",
    "INSUFFICIENT_SIZE", "VGPU_ECC_NOT_SUPPORTED",
)  # fmt: skip


def _harmless(nvml: Any) -> set[int]:
    """Return the codes of errors that are no fault of a card, as far as the binding names them."""
    return {getattr(nvml, f"NVML_ERROR_{name}", -1) for name in _HARMLESS}


class Events:
    """Events of the driver, from a set with which cards are registered.

    Args:
        nvml: The pynvml module with an open session.

    Raises:
        NVMLError: The driver does not support events.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml, self._set = nvml, nvml.nvmlEventSetCreate()
        self._kinds = 0
        for name in _KINDS:  # an older binding does not name the newer ones
            self._kinds |= getattr(nvml, f"nvmlEventType{name}", 0)

    def register(self, handles: Iterable[Any]) -> int:
        """Register cards, and return how many will report; a card without events is no worse than others."""
        count = 0
        for handle in handles:
            try:
                kinds = self._kinds & self._nvml.nvmlDeviceGetSupportedEventTypes(handle)
                if kinds:
                    self._nvml.nvmlDeviceRegisterEvents(handle, kinds, self._set)
                    count += 1
            except self._nvml.NVMLError:
                continue
        return count

    def wait(self) -> Iterator[tuple[GpuId, int | None]]:
        """Yield a GPU and its XID for each event, for ever.

        XID None stands for an event of another kind: all cards must be read then. The GPU id is "" if the driver
        reports an error without naming a card.

        Raises:
            NVMLError: The session has ended.
        """
        nvml, failing = self._nvml, False
        while True:
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, int(EVENTS_S * 1000))
                failing = False
                uuid = nvml.nvmlDeviceGetUUID(event.device)
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_TIMEOUT:
                    failing = False
                    continue
                if error.value == nvml.NVML_ERROR_UNINITIALIZED:
                    raise
                if not failing:  # a card is lost: read all cards to find it; the others may still report
                    yield GpuId(""), None
                failing = True
                time.sleep(EVENTS_S)
                continue
            is_xid = event.eventType == nvml.nvmlEventTypeXidCriticalError
            name = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
            yield GpuId(name), int(event.eventData) if is_xid else None
