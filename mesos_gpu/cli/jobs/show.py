"""Output of `mesos-gpu show`: a line for each field that `JobSpec` declares as shown, and the job's progress."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mesos_gpu.cli import output
from mesos_gpu.cli.jobs.listing import command_line
from mesos_gpu.cli.lists.spark import spark
from mesos_gpu.cli.share import amount, burst, gpu_names, gpus_by_host, used, words
from mesos_gpu.model.jobs import fields as of
from mesos_gpu.model.jobs.fields import Field, Kind, entry
from mesos_gpu.model.jobs.job import FIELDS, JobState
from mesos_gpu.model.jobs.quota import PROOFLESS
from mesos_gpu.model.shares.units import WHOLE, number_of
from mesos_gpu.model.words import counted
from mesos_gpu.wire.mounts import volume_text

if TYPE_CHECKING:
    from mesos_gpu.api.spec.gpus.idle import ComingEnd, JobIdle
    from mesos_gpu.api.spec.gpus.use import JobUse, UseOverTime
    from mesos_gpu.api.spec.shapes import Gpu, Job, Notice, Resize, Share, UsedShare

HEALTHY: Final = {True: "yes", False: "no", None: None}
_MAX_NAMED: Final = 8  # jobs named in one line
_CHART: Final = 48  # characters of the chart
_NEW: Final = "..."  # position of lines that are not in this order
_ORDER: Final = (
    "id", "name", "owner", "state", "exit code", "message", "image", "image secret", "command", "cpus",
    "cpu limit", "memory", "disk", "gpus", "tasks",
    "min driver", "placement", "queue", "app", "constraints", "near", "away from", "topology",
    "segment", "volumes", "fetched", "may reach",
    "checks", _NEW, "healthy", "held gpus", "bus ids", "share", "used", "use", "resize", "notified", "ends by", "idle",
    "checkpoint", "preempted", "room made by", "node", "runs as", "env", "secrets", "labels",
    "attempt", "launches", "if gpu fails", "time limit", "kill grace", "submitted", "started", "ended",
)  # fmt: skip


def facts(job: "Job", gpus: "Mapping[str, Gpu]") -> list[tuple[str, object]]:
    """Return labels and values of a job's request and progress; empty values are left out.

    Args:
        job: Job in the scheduler's answer.
        gpus: GPUs of the job's nodes, by UUID; held GPUs that are missing here are shown by UUID.
    """
    names = gpu_names(gpus.values())
    buses = [gpus[uuid]["pci_bus_id"] for uuid in job["gpu_ids"] if uuid in gpus]
    lines = {
        **_progress(job, names),
        "bus ids": " ".join(buses),
        **{field.shown: _told(field, job) for field in FIELDS if field.shown},
    }
    new = [label for label in lines if label not in _ORDER]
    place = _ORDER.index(_NEW)
    order = (*_ORDER[:place], *new, *_ORDER[place + 1 :])
    return [(label, lines[label]) for label in order if lines.get(label) not in (None, "")]


def past(use: "UseOverTime") -> list[tuple[str, object]]:
    """Return lines for the utilization of the last quarter hour, and of the last day if more of it is known."""
    fine_s = use["fine"]["step_s"] * len(use["fine"]["busy_pct"])
    series = (("last 15 min", use["fine"], 0.0), ("last 24 h", use["coarse"], fine_s))
    return [
        (
            f"use, {label}",
            f"{spark(series_of_use['busy_pct'], most=100, width=_CHART)} {_mean(series_of_use['busy_pct'])}",
        )
        for label, series_of_use, least_s in series
        if series_of_use["step_s"] * sum(value is not None for value in series_of_use["busy_pct"]) > least_s
    ]


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.0f} % on average"


def _progress(job: "Job", gpus: Mapping[str, str]) -> dict[str, object]:
    """Return lines about a job's state, GPUs, notices, launches and times by label."""
    return {
        "id": job["id"],
        "name": job["name"],
        "state": job["state"],
        "exit code": job["exit_code"],
        "message": job["message"],
        **({"owner": _owner(job["owner"])} if job["owner"] else {}),
        "command": "(hidden from you)" if job["hidden"] else command_line(job),
        "healthy": HEALTHY[job["healthy"]],
        "held gpus": " ".join(gpus_by_host(gpus.get(uuid, uuid) for uuid in job["gpu_ids"])),
        **({"share": _share(job["share"], job["gpu_memory_max_mib"])} if job["share"] else {}),
        **({"used": _used(job["share_uses"], gpus)} if job["share_uses"] else {}),
        **({"use": _use(job["use"])} if job["use"] else {}),
        **({"resize": _resize(job["resize"])} if job["resize"] else {}),
        **({"notified": _notice(job["notice"])} if job["notice"] else {}),
        **({"ends by": _coming_end(job["coming_end"])} if job["coming_end"] else {}),
        **({"idle": _idle(job["idle"])} if job["idle"] else {}),
        **({"checkpoint": output.stamp(job["checkpoint_at"])} if job["checkpoint_at"] else {}),
        **({"preempted": counted(job["stopped"], "time")} if job["stopped"] else {}),
        **({"room made by": _several(job["room_made_by"])} if job["room_made_by"] else {}),
        "node": " ".join(job["hostnames"]),
        "launches": _launches(job),
        "submitted": output.stamp(job["submitted_at"]),
        "started": output.stamp(job["started_at"]),
        "ended": output.stamp(job["ended_at"]),
    }


def _launches(job: "Job") -> str:
    """Return the number of launches, and how many of them ended through no fault of the job."""
    others = job["infrastructure_failures"]
    return str(job["launches"]) + (f", {others} ended by the cluster, which use no attempt" if others else "")


def _attempt(job: "Job") -> str:
    """Return the current attempt and the maximum; only a launch that fails by itself uses up an attempt."""
    ended = JobState(job["state"]).ended
    number = job["attempts"] + (not ended)
    return f"{min(max(number, 1), job['max_attempts'])} of {job['max_attempts']}"


def _share(share: "Share", most_mib: int | None) -> str:
    """Return the share granted of each GPU, its guarantee and method; `most_mib` is the requested maximum memory."""
    return f"{amount(share)} of each{burst(share, most_mib)}; {words(share['guarantee'])} ({share['method']})"


def _used(uses: Sequence["UsedShare"], gpus: Mapping[str, str]) -> str:
    """Return the current and maximum use of shares by tasks, with problems."""
    return "; ".join(_share_use(use, gpus.get(use["gpu_id"], use["gpu_id"])) for use in uses)


def _share_use(use: "UsedShare", gpu: str) -> str:
    facts = [
        f"{used(use)} of {gpu}",
        f"at most {use['most_memory_mib']} MiB" if use["most_memory_mib"] is not None else "",
        f"{counted(use['refused'], 'allocation')} refused" if use["refused"] else "",
        f"{counted(use['windows_missed'], 'window')} missed" if use["windows_missed"] else "",
        use["problem"] or "",
    ]
    return ", ".join(filter(None, facts))


def _use(use: "JobUse") -> str:
    """Return the current use of the job's GPUs, as far as the hosts report it."""
    busy, mib, processes, idle_s = use["busy_pct"], use["memory_mib"], use["processes"], use["idle_s"]
    facts = [
        "utilization unknown" if busy is None else f"{round(busy, 1):g} % busy",
        "" if mib is None else f"{mib} MiB",
        "" if processes is None else "1 process" if processes == 1 else f"{processes} processes",
        "" if idle_s is None else f"idle for {output.span(idle_s)}",
    ]
    return ", ".join(filter(None, facts))


def _resize(resize: "Resize") -> str:
    amounts = f"{resize['compute_pct']:g}% {resize['memory_mib']} MiB"
    unanswered = "its host has not answered yet"
    words = {
        "asked": unanswered, "done": "done", "withdrawing": f"as before, and {unanswered}", "withdrawn": "as before",
    }.get(resize["state"], resize["reason"] or "")  # fmt: skip
    return f"to {amounts}, requested {output.age(resize['since'])} ago: {words}"


def _owner(name: str) -> str:
    return f"{name.removesuffix(PROOFLESS)}, not authenticated" if name.endswith(PROOFLESS) else name


def _idle(idle: "JobIdle") -> str:
    """Return how long the job's GPUs were idle, what follows from it, and until when the job is kept."""
    kept = "" if idle["keep_until"] is None else f"kept until {output.stamp(idle['keep_until'])}"
    by = f" by {idle['kept_by']}" if kept and idle["kept_by"] else ""
    if idle["state"] == "active":
        return f"{kept}{by}"
    text = f"{idle['state']}: its GPUs were idle for {idle['idle_s']:.0f} s"
    after = f"warning after {idle['warn_after_s']:g} s and end after {idle['return_after_s']:g} s"
    comes = {"report": "", "pressure": f"; {after} if other jobs wait for GPUs", "always": f"; {after}"}[
        idle["policy"]
    ]
    return f"{text}{comes}{f'; {kept}{by}' if kept else ''}"


def _coming_end(end: "ComingEnd") -> str:
    """Return when a job ends at the latest, why, and what happens then."""
    return f"{output.stamp(end['at'])}, {output.expected(end['at'])}: {end['why']}; {end['then']}"


def _notice(notice: "Notice") -> str:
    """Return the end notice of the job's tasks, and its outcome."""
    if notice["recalled_at"] is not None:
        return f"cancelled: {notice['why']}"
    if notice["warning"]:
        return f"a warning: {notice['why']}"
    unheard = "" if notice["told"] else "; not all its hosts have answered"
    return f"to end at {output.stamp(notice['until'])}: {notice['why']}{unheard}"


def _several(ids: Sequence[str]) -> str:
    """Return the first few IDs as text."""
    rest = f" and {len(ids) - _MAX_NAMED} more" if len(ids) > _MAX_NAMED else ""
    return " ".join(ids[:_MAX_NAMED]) + rest


def _told(field: Field, job: "Job") -> object:
    if field.name in _TOGETHER:
        return _TOGETHER[field.name](job)
    asked: Mapping[str, Any] = job
    return entry(_TEXTS, field.kind)(asked[field.key])


# --- fields by their kinds


def _as_it_is(value: object) -> object:
    return value


def _words(values: Any) -> str:
    return " ".join(map(str, values))


def _pairs(values: Mapping[str, str]) -> str:
    return shlex.join(f"{key}={value}" for key, value in sorted(values.items()))


def _secrets(secrets: Mapping[str, Any]) -> str:
    uses = ((name, use["source"], f":{use['file']}" if use["file"] else "") for name, use in secrets.items())
    return shlex.join(f"{name}={source}{file}" for name, source, file in sorted(uses))


def _check(check: Any) -> str:
    what = check["command"] or f"port {check['port'] or 'of each task'}{check['path'] or ''}"
    return f"{check['protocol']} {what} every {check['interval_s']} s"


_TEXTS: Final[Mapping[type[Kind], Callable[[Any], object]]] = {
    of.Text: _as_it_is,
    of.Image: _as_it_is,
    of.Command: _as_it_is,
    of.Argv: lambda words: shlex.join(words or ()),
    of.Args: lambda words: shlex.join(words or ()),
    of.Number: _as_it_is,
    of.Mib: lambda mib: f"{mib} MiB" if mib else None,
    of.Seconds: lambda seconds: None if seconds is None else f"{seconds:g} s",
    of.Flag: lambda flag: HEALTHY[flag],
    of.OneOf: _as_it_is,
    of.SomeOf: ", ".join,
    of.Models: " or ".join,
    of.Receivers: " ".join,
    of.ArrayIndexes: _as_it_is,
    of.Strings: _pairs,
    of.Constraints: lambda constraints: ", ".join(" ".join(words) for words in constraints),
    of.Level: lambda level: " ".join(*level.items()) if level else None,
    of.Ports: _words,
    of.Artifacts: lambda artifacts: " ".join(artifact["uri"] for artifact in artifacts),
    of.Mounts: lambda volumes: _words(map(volume_text, volumes)),
    of.Secrets: _secrets,
    of.HealthChecks: lambda checks: ", ".join(_check(check) for check in checks),
}


# --- several fields in one line


def runs_as(job: "Job") -> str:
    """Return the Unix user that a job runs as, with a remark for root."""
    if job["runs_as"] != "root":
        return job["runs_as"] or "the user of its executor"
    return "root, in its image" if job["image"] else "root of the host, restricted only by isolation"


def _gpus(job: "Job") -> str:
    models = " or ".join(job["gpu_model"])
    asked = [
        f" of model {models}" if models else "",
        *_of_each(job),
        f", compute capability {job['compute_capability']} or newer" if job["compute_capability"] else "",
    ]
    return f"{job['gpus']}{''.join(asked)}"


def _of_each(job: "Job") -> list[str]:
    """Return the request per GPU: the size of a share, or the minimum memory of whole GPUs."""
    memory_mib, most_mib = job["gpu_memory_mib"], job["gpu_memory_max_mib"]
    compute, isolation = job["gpu_compute_pct"], job["isolation"]
    if compute is None and float(job["gpus"]).is_integer():
        return [f" with {memory_mib} MiB or more"] if memory_mib else []
    shares = [
        f"{compute} % of compute" if compute is not None else "",
        f"{memory_mib} MiB" if memory_mib else "",
    ]
    share_text = " and ".join(filter(None, shares))
    return [
        f", {share_text} of each" if share_text else "",
        f", up to {most_mib} MiB while other shares leave it free" if most_mib else "",
        f", isolation {isolation}" if isolation else "",
    ]


def _tasks(job: "Job") -> str:
    if job["tasks"] == 1:
        return "1"
    ends = "the job fails" if job["on_member_failure"] == "fail" else "all start again"
    gpus = number_of(round(job["gpus"] * WHOLE) * job["tasks"])
    return f"{job['tasks']}, {counted(gpus, 'GPU')} in total; if one fails, {ends}"


def _min_driver(job: "Job") -> str | None:
    learnt = job["learnt_min_driver"]
    parts = [job["min_driver"]] if job["min_driver"] else []
    return ", ".join([*parts, *([f"{learnt} by its image"] if learnt else [])]) or None


def _image(job: "Job") -> str | None:
    return f"{job['image']} ({job['container_engine']})" if job["image"] else None


def _queue(job: "Job") -> str:
    return f"{job['queue']}, priority {job['priority']}{', preemptible' if job['preemptible'] else ''}"


def _signal(job: Mapping[str, Any]) -> object:
    return None if job["notice_signal"] == "none" else job["notice_signal"]


#: Texts of lines that show more than the field that they are named by.
_TOGETHER: Final[Mapping[str, Callable[["Job"], object]]] = {
    "image": _image,
    "gpus": _gpus,
    "tasks": _tasks,
    "min_driver": _min_driver,
    "queue": _queue,
    "user": runs_as,
    "max_attempts": _attempt,
    "notice_signal": _signal,
}
