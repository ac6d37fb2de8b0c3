"""View of GPUs: the jobs on each, and their use of it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.share import words
from mesos_gpu.cli.top.view import Row, Seen, View

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Gpu, GpuShare, Job
    from mesos_gpu.cli.client import Client

_BAR: Final = 10  # characters
_MILLI: Final = 1000
_MAX_JOBS: Final = 1_000_000  # maximum number of jobs listed at once
NO_USERS: Final[Mapping[str, str | None]] = MappingProxyType({})


class Use(NamedTuple):
    """A row: a job's part of a GPU, or the free part; None for values that are unknown or have no meaning.

    Memory is in MiB, compute in percent of the GPU, power in watts, temperature in degrees Celsius.
    """

    host: str
    gpu_index: int | None
    state: str
    job: str | None
    user: str | None = None
    memory: int | None = None
    memory_of: int | None = None
    compute: float | None = None
    compute_of: float | None = None
    power: int | None = None
    temperature: int | None = None
    refused: int | None = None
    guarantee: str | None = None
    note: str = ""
    ends: str | None = None  # the job that may be killed from this row


def look(client: "Client", nodes: Sequence[str] = ()) -> Seen:
    """Return the rows of all GPUs, or of those of the given nodes."""
    gpus = client.gpus(nodes)
    users = {job["id"]: job["owner"] or job["runs_as"] for job in active_jobs(client)}
    return Seen([_row(use, number) for number, use in enumerate(uses(gpus, users))], summary(gpus), gpus)


def active_jobs(client: "Client") -> "list[Job]":
    """Return all jobs that have not ended."""
    return client.listed(states=["active"], limit=_MAX_JOBS, order=None)["jobs"]


def summary(gpus: "Sequence[Gpu]") -> str:
    """Return a one-line summary of the GPUs."""
    shared = sum(gpu["sharing"] is not None for gpu in gpus)
    whole = sum(gpu["sharing"] is None and gpu["job_id"] is not None for gpu in gpus)
    hosts = len({gpu["agent_id"] for gpu in gpus})
    return f"GPUs: {len(gpus)} on {hosts} {'host' if hosts == 1 else 'hosts'}, {shared} shared, {whole} held whole"


def uses(gpus: "Sequence[Gpu]", users: Mapping[str, str | None] = NO_USERS) -> list[Use]:
    """Return the rows by host and GPU, shares before the free part; `users` are the users of jobs by ID."""
    rows = [row._replace(user=users.get(row.ends or "")) for gpu in gpus for row in _of_card(gpu)]
    return sorted(rows, key=lambda row: (row.host, row.gpu_index is None, row.gpu_index or 0))


def _row(use: Use, number: int) -> Row:
    memory, compute = bar(use.memory, use.memory_of), bar(use.compute, use.compute_of)
    percent = None if use.compute is None else round(use.compute, 1)
    cells = (*use[:7], memory, percent, use.compute_of, compute, *use[9:14])
    amounts = {
        "memory": use.memory,
        "compute": use.compute,
        "power": use.power,
        "temperature": use.temperature,
    }
    return Row(f"{use.host}:{use.gpu_index}:{use.job or number}", cells, use.ends, amounts)


def _of_card(gpu: "Gpu") -> list[Use]:
    """Return the rows of a GPU: one for a whole GPU, else one per share and one for the free part."""
    at, sharing, now = (gpu["hostname"], gpu["index"]), gpu["sharing"], gpu["use"]
    power_mw, temperature = (now["power_mw"], now["temperature_c"]) if now else (None, None)
    power = None if power_mw is None else round(power_mw / _MILLI)
    if sharing is None:
        used = (now["memory_used_mib"], now["busy_pct"]) if now else (None, None)
        held = gpu["job_id"] or gpu["task_id"]
        return [
            Use(
                *at, gpu["health"], held, None, used[0], gpu["memory_mib"], used[1], 100, power, temperature,
                note=gpu["reason"], ends=gpu["job_id"],
            )
        ]  # fmt: skip
    uncovered = sharing["state"] == "uncovered"
    left = (
        None if uncovered else sharing["free_memory_mib"],
        None if uncovered else sharing["free_compute_pct"],
    )
    state, name = ("uncovered", "(uncovered)") if uncovered else (gpu["health"], "(free)")
    free = Use(*at, state, name, None, None, left[0], None, left[1], power, temperature, note=gpu["reason"])
    return [*(_of_share(gpu, share) for share in gpu["shares"]), free]


def _of_share(gpu: "Gpu", share: "GpuShare") -> Use:
    """Return the row of a share."""
    used = share["used"]
    memory = used["memory_mib"] if used else None
    over = memory is not None and memory > share["memory_max_mib"]
    return Use(
        gpu["hostname"],
        gpu["index"],
        "over" if over else gpu["health"],
        share["job_id"] or share["task_id"],
        None,
        memory,
        share["memory_mib"],
        used["compute_pct"] if used else None,
        share["compute_pct"],
        refused=used["refused"] if used else None,
        guarantee=words(share["guarantee"]),
        note=(used["problem"] or "") if used else "",
        ends=share["job_id"],
    )


def bar(used: float | None, of: float | None) -> str | None:
    """Return a bar of the used part, full if more is used; None if not known."""
    if used is None or not of:
        return None
    full = min(round(_BAR * used / of), _BAR)
    return "█" * full + "░" * (_BAR - full)


CARDS: Final = View(
    "cards",
    (
        "HOST", "INDEX", "STATE", "JOB", "USER", "USED_MIB", "SHARE_MIB", "MEMORY", "USED_%", "SHARE_%", "COMPUTE",
        "POWER_W", "TEMP_C", "REFUSED", "GUARANTEE", "NOTE",
    ),
    Fit(
        cut=("NOTE", "USER"),
        leave=(
            "GUARANTEE", "REFUSED", "MEMORY", "SHARE_%", "SHARE_MIB", "TEMP_C", "POWER_W", "COMPUTE", "NOTE",
            "USED_MIB", "STATE", "USER",
        ),
        ids=("JOB",),
        hosts=("HOST",),
        names=("JOB",),
    ),
    ("card", "memory", "compute", "power", "temperature"),
    look,
    "No node has reported a GPU.",
    ("MEMORY", "COMPUTE"),
)  # fmt: skip
