"""What is sent to change the shares of a running job, checked: a merge patch (RFC 7396). Pure."""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.model.jobs.fields import Whole
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.wire.checking import Check, Problem, object_of

_NAMES: Final = ("gpu_memory_mib", "gpu_compute_pct", "gpu_memory_max_mib")
_BOUNDS: Final = {
    field.key: (field.kind.least, field.kind.most)
    for field in FIELDS
    if field.key in _NAMES and isinstance(field.kind, Whole)
}
MOST_MIB: Final = _BOUNDS["gpu_memory_mib"][1]


def decode(body: bytes) -> Mapping[str, int | None] | list[Problem]:
    """What changes, by the names of a job's fields; None: it is asked for no more.

    Raises:
        BadJson: It is no JSON object.
    """
    value = object_of(body)
    check = Check(value, _NAMES)
    patch: dict[str, int | None] = {
        name: None if value[name] is None else check.integer(name, 1, _BOUNDS[name])
        for name in _NAMES
        if name in value
    }
    memory_mib, most_mib = patch.get("gpu_memory_mib"), patch.get("gpu_memory_max_mib")
    if not value:
        check.problem("", f"says nothing of {', '.join(_NAMES)}")
    if not check.problems and memory_mib and most_mib and most_mib < memory_mib:
        check.problem("gpu_memory_max_mib", f"must be at least gpu_memory_mib, {memory_mib}, got {most_mib}")
    return check.problems or patch
