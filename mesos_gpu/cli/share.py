"""How shared GPUs are drawn: a row for each share, and one for what is free."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mesos_gpu.model.shares.units import PER_PERCENT, WHOLE, cards_of, number_of

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Gpu, GpuSharing, Guarantee, Share, ShareUse


_BY = {"cooperative": "CUDA library (cooperative)", "none": "not enforced"}
_FAULTS = {"user": "shared by its user's jobs", "card": "shared by all jobs of its GPU"}


class Part(NamedTuple):
    """What a row says of the part of a GPU that it is about. None: nothing is to be said."""

    job_id: str | None
    share: str | None = None
    used: str | None = None
    method: str | None = None
    guarantee: str | None = None


def parts(gpu: "Gpu") -> Iterator[Part]:
    """Each share of a GPU, and what is free of it; of one that is not shared the whole."""
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
    """The part of the last minute in which a GPU was at work, in percent; None: nobody can say, or shares say it."""
    return gpu["use"]["busy_pct"] if gpu["use"] and gpu["sharing"] is None else None


def busy(gpu: "Gpu") -> str | None:
    """`busy_pct` rounded, as "73%"; None: nobody can say, or shares say it."""
    return None if (percent := busy_pct(gpu)) is None else f"{percent:.0f}%"


def amount(share: "Share") -> str:
    """A share in few words: "25% 20480 MiB"."""
    return f"{share['compute_pct']:g}% {share['memory_mib']} MiB"


def gpus_counted(gpus: float, compute_pct: int | None) -> float:
    """GPUs that are asked for, as limits count them: an exact share is a part of its GPUs."""
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
    """GPUs of each of so many tasks: 8, or 3x8."""
    return str(gpus) if tasks == 1 else f"{tasks}x{gpus}"


def burst(share: "Share", asked_mib: int | None) -> str:
    """What it may use beyond its memory while others leave it: told where it may, and where it asked in vain."""
    if share["memory_max_mib"] > share["memory_mib"]:
        return f", up to {share['memory_max_mib']} MiB while others leave it"
    return ", and no more, whatever others leave" if asked_mib else ""


def used(use: "ShareUse") -> str:
    """What is used of it, in as few: "24% 18000 MiB"; "?" where nobody can say."""
    compute, memory = use["compute_pct"], use["memory_mib"]
    return f"{'?' if compute is None else f'{compute:g}'}% {'?' if memory is None else memory} MiB"


def words(guarantee: "Guarantee") -> str:
    """Return in words what enforces a share."""
    faults = _FAULTS.get(guarantee["faults"], guarantee["faults"])
    memory, compute = (_BY.get(guarantee[name], guarantee[name]) for name in ("memory", "compute"))
    enforced = memory if memory == compute else f"memory: {memory}, compute: {compute}"
    return f"{enforced}; faults {faults}"


def _left(sharing: "GpuSharing") -> str:
    memory_mib = sharing["free_memory_mib"]
    return f"{sharing['free_compute_pct']:g}%{'' if memory_mib is None else f' {memory_mib} MiB'}"
