"""Display of GPU shares: amounts, use and guarantees."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mesos_gpu.model.shares.units import PER_PERCENT, WHOLE, cards_of, number_of

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Gpu, GpuSharing, Guarantee, Share, ShareUse


_BY = {"cooperative": "CUDA library (cooperative)", "none": "not enforced"}
_FAULTS = {"user": "shared by its user's jobs", "card": "shared by all jobs of its GPU"}


class Part(NamedTuple):
    """A share, or the free part, of a GPU in a row of a list; None values are shown as `-`."""

    job_id: str | None
    share: str | None = None
    used: str | None = None
    method: str | None = None
    guarantee: str | None = None


def parts(gpu: "Gpu") -> Iterator[Part]:
    """Yield the shares of a GPU and its free part; for an unshared GPU the whole."""
    sharing = gpu["sharing"]
    if sharing is None:
        yield Part(gpu["job_id"])
        return
    for share in gpu["shares"]:
        yield Part(
            share["job_id"] or share["task_id"],
            amount(share),
            used(share["used"]) if share["used"] else None,
            share["method"],
            words(share["guarantee"]),
        )
    yield Part("(uncovered)" if sharing["state"] == "uncovered" else "(free)", _left(sharing))


def busy_pct(gpu: "Gpu") -> float | None:
    """Return a GPU's utilization in the last minute in percent; None if not known, or if the GPU is shared."""
    return gpu["use"]["busy_pct"] if gpu["use"] and gpu["sharing"] is None else None


def busy(gpu: "Gpu") -> str | None:
    """Return `busy_pct` as text, for example "73%"; None if not known, or if the GPU is shared."""
    return None if (percent := busy_pct(gpu)) is None else f"{percent:.0f}%"


def amount(share: "Share") -> str:
    """Return a share as text, for example "25% 20480 MiB"."""
    return f"{share['compute_pct']:g}% {share['memory_mib']} MiB"


def gpus_counted(gpus: float, compute_pct: int | None) -> float:
    """Return the requested GPUs as limits count them: number of cards times the larger of compute and fraction."""
    if compute_pct is None:
        return gpus
    cards, milli = cards_of(round(gpus * WHOLE))
    return number_of(cards * max(compute_pct * PER_PERCENT, milli if milli < WHOLE else 0))


def gpu_names(gpus: Iterable["Gpu"]) -> dict[str, str]:
    """Return the names of GPUs as HOST:INDEX, by UUID; a GPU without an index has none."""
    return {gpu["uuid"]: f"{gpu['hostname']}:{gpu['index']}" for gpu in gpus if gpu["index"] is not None}


def gpus_by_host(names: Iterable[str]) -> list[str]:
    """Join GPUs of one host that are named HOST:INDEX: `a:0 a:1 b:3` is `a:0,1 b:3`."""
    indexes: dict[str, list[str]] = {}
    for name in names:
        host, _, index = name.rpartition(":")
        indexes.setdefault(host or name, []).append(index if host else "")
    return [f"{host}:{','.join(of_host)}" if all(of_host) else host for host, of_host in indexes.items()]


def gpus_of_tasks(tasks: int, gpus: float) -> str:
    """Return the GPUs of tasks as text: 8, or 3x8 for three tasks."""
    return str(gpus) if tasks == 1 else f"{tasks}x{gpus}"


def burst(share: "Share", asked_mib: int | None) -> str:
    """Return a remark about memory beyond the share: its maximum, or that the requested maximum was not granted."""
    if share["memory_max_mib"] > share["memory_mib"]:
        return f", up to {share['memory_max_mib']} MiB while other shares leave it free"
    return ", without the requested maximum beyond it" if asked_mib else ""


def used(use: "ShareUse") -> str:
    """Return the use of a share as text, for example "24% 18000 MiB"; "?" for unknown values."""
    compute, memory = use["compute_pct"], use["memory_mib"]
    return f"{'?' if compute is None else f'{compute:g}'}% {'?' if memory is None else memory} MiB"


def words(guarantee: "Guarantee") -> str:
    """Return a description of what enforces a share."""
    faults = _FAULTS.get(guarantee["faults"], guarantee["faults"])
    memory, compute = (_BY.get(guarantee[name], guarantee[name]) for name in ("memory", "compute"))
    enforced = memory if memory == compute else f"memory: {memory}, compute: {compute}"
    return f"{enforced}; faults {faults}"


def _left(sharing: "GpuSharing") -> str:
    memory_mib = sharing["free_memory_mib"]
    return f"{sharing['free_compute_pct']:g}%{'' if memory_mib is None else f' {memory_mib} MiB'}"
