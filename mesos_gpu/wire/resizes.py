"""What is sent to change the shares of a running job, checked: a merge patch (RFC 7396). Pure."""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.model.jobs.fields import Whole
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.wire.checking import Check, Problem, object_of

_NAMES: Final = ("gpu_memory_mib", "gpu_compute_pct", "gpu_memory_max_mib")
_BOUNDS: Final = {
    field.key: (field.kind.least, field.kind.most)
    for field in FIELDS
    if field.key in _NAMES and isinstance(field.kind, Whole)
}
_PART: Final = "gpus"
MOST_MIB: Final = _BOUNDS["gpu_memory_mib"][1]


def decode(body: bytes) -> Mapping[str, int | None] | list[Problem]:
    """Return what changes, by the names of fields of `JobSpec`; None: it is asked for no more.

    A part of a GPU (`gpus`) is of its memory and of its compute, except for what other fields say.

    Raises:
        BadJson: It is no JSON object.
    """
    value = object_of(body)
    check = Check(value, (_PART, *_NAMES))
    patch: dict[str, int | None] = {}
    if _PART in value:
        part = check.number(_PART, 0.5, _is_part, "a part of one GPU in thousandths, as 0.25")
        patch = {"gpu_milli": round(part * WHOLE), "gpu_memory_mib": None, "gpu_compute_pct": None}
    patch |= {
        name: None if value[name] is None else check.integer(name, 1, _BOUNDS[name])
        for name in _NAMES
        if name in value
    }
    memory_mib, most_mib = patch.get("gpu_memory_mib"), patch.get("gpu_memory_max_mib")
    if not value:
        check.problem("", f"says nothing of {', '.join((_PART, *_NAMES))}")
    if not check.problems and memory_mib and most_mib and most_mib < memory_mib:
        check.problem("gpu_memory_max_mib", f"must be at least gpu_memory_mib, {memory_mib}, got {most_mib}")
    return check.problems or patch


def _is_part(gpus: float) -> bool:
    return 0 < gpus < 1 and round(gpus * WHOLE) / WHOLE == gpus
