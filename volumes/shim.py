"""A variant of a driver volume with this project's libraries in front of libcuda and NVML. Without side
effects.

`lib64/libcuda.so.1` and `lib64/libnvidia-ml.so.1` are this project's; all other names of the two lead to
them, also those with the driver's version. The driver's own lie beside them as `libmgpu-real-cuda.so` and
`libmgpu-real-ml.so`, which the former name in DT_NEEDED. `region` (volumes.keys.REGION) is an empty
directory: the mount point of the task's limits and usage.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.errors import NotFound
from volumes.keys import REPLACED, variant_of
from volumes.model import Entry, Excluded, Group, Link, Plan

_GROUPS: Final = {"libcuda": Group.COMPUTE, "libnvidia-ml": Group.UTILITY}


@dataclass(frozen=True, slots=True)
class Shim:
    """The compiled libraries of this project.

    Attributes:
        digest: SHA-256 of their sources, hexadecimal.
        cuda: Path of the library in front of libcuda.
        nvml: Path of the library in front of NVML.
    """

    digest: str
    cuda: str
    nvml: str

    @property
    def variant(self) -> str:
        """Return the variant of volumes with these libraries: "shim-0123456789ab"."""
        return variant_of(self.digest)


def with_shim(plan: Plan, shim: Shim) -> Plan:
    """Plan the volume with this project's libraries in front of the driver's.

    32-bit libraries are left out: this project's are for 64 bits, and a 32-bit program would bypass them.

    Raises:
        NotFound: The driver has no 64-bit libcuda or NVML.
    """
    files = {"libcuda": shim.cuda, "libnvidia-ml": shim.nvml}
    entries = {entry.target: entry for entry in plan.entries if not entry.target.startswith("lib/")}
    links = {link.target: link for link in plan.links if not link.target.startswith("lib/")}
    for stem, ours, real in REPLACED:
        theirs = _of(stem, entries)
        if theirs is None:
            raise NotFound(
                f"driver {plan.version} has no 64-bit {ours} on this host",
                remedy="install the driver's user-space libraries",
            )
        del entries[theirs.target]
        links = {name: link for name, link in links.items() if not _is_of(stem, name)}
        names = {
            theirs.target,
            f"lib64/{stem}.so",
            *(link.target for link in plan.links if _is_of(stem, link.target)),
        }
        links |= {name: Link(name, ours) for name in names if name != f"lib64/{ours}"}
        entries[f"lib64/{real}"] = replace(theirs, target=f"lib64/{real}")
        entries[f"lib64/{ours}"] = Entry(f"lib64/{ours}", files[stem], _GROUPS[stem], own=True)
    return replace(
        plan,
        variant=shim.variant,
        entries=tuple(entries[name] for name in sorted(entries)),
        links=tuple(links[name] for name in sorted(links)),
        excluded=tuple(sorted({*plan.excluded, *_small(plan)}, key=lambda one: (one.path, one.reason))),
    )


def _is_of(stem: str, target: str) -> bool:
    return target.startswith(f"lib64/{stem}.so")


def _of(stem: str, entries: dict[str, Entry]) -> Entry | None:
    return next((entry for name, entry in entries.items() if _is_of(stem, name)), None)


def _small(plan: Plan) -> Iterator[Excluded]:
    for entry in plan.entries:
        if entry.target.startswith("lib/"):
            yield Excluded(entry.source, "a 32-bit program would bypass the share's limits")
