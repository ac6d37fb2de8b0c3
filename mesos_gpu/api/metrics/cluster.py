"""Metrics of the cluster as a whole: nodes, waiting jobs, GPUs held and free, apps and deployments."""

import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from mesos_gpu import __version__
from mesos_gpu.api.metrics.cards import Gpus, gpus_of
from mesos_gpu.api.metrics.family import Family, Values
from mesos_gpu.engine.gpus.rolling import Rolling
from mesos_gpu.engine.reading.apps import instances_of, serving_tasks
from mesos_gpu.engine.reading.jobs import unmade_tasks, wait_reasons
from mesos_gpu.engine.reading.nodes import rolling_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.queueing.queue import in_line_since

MAX_ROWS: Final = 500  # for families whose labels users choose
MAX_ASKED: Final = 1000  # waiting jobs that are explained, on the engine's thread
OTHERS: Final = "*"  # label of the sum of all other rows
R = TypeVar("R", bound=tuple[str, ...])


def _unlabelled(number: float) -> Values:
    yield (), number


# --- nodes


def _nodes(view: View) -> Mapping[str, int]:
    """Return the number of nodes by state; each node is in one state."""
    drained = {drain.name for drain in view.drains.values()}
    counts = Counter(
        "lost" if node.lost_at is not None else "drained" if node.hostname in drained else "up"
        for node in view.nodes.values()
    )
    return {state: counts[state] for state in ("up", "drained", "lost")}


def _backed_off(view: View) -> int:
    """Return the number of agents that are there and are backed off."""
    return sum(bool(node.launch_not_before) and node.lost_at is None for node in view.nodes.values())


def _outside_levels(view: View) -> int:
    """Return the number of agents outside of the levels of the fabric."""
    return len(view.fabric.outside)


def _rolling(view: View) -> Rolling:
    return rolling_of(view)


# --- what waits


class _Line(NamedTuple):
    """Waiting jobs of a queue."""

    jobs: int
    oldest: float  # time since which the first job waits, in seconds since the epoch


def _waiting_by_queue(view: View) -> Mapping[str, _Line]:
    """Return the waiting jobs by queue, including array tasks that are not jobs yet."""
    lines: dict[str, _Line] = {}
    for job in view.jobs.values():
        if job.state is JobState.PENDING:
            jobs, oldest = lines.get(job.spec.queue, (0, float("inf")))
            lines[job.spec.queue] = _Line(jobs + 1, min(oldest, in_line_since(job)))
    for array in view.arrays.values() if unmade_tasks(view) else ():
        if unmade := unmade_tasks(view, array):
            jobs, oldest = lines.get(array.spec.queue, (0, float("inf")))
            lines[array.spec.queue] = _Line(jobs + unmade, min(oldest, array.submitted_at))
    return lines


def _reasons(view: View) -> Mapping[str, int]:
    """Return the number of waiting jobs by reason."""
    return (
        wait_reasons(view, MAX_ASKED)
        if any(job.state is JobState.PENDING for job in view.jobs.values())
        else {}
    )


def _waiting(lines: Mapping[str, _Line]) -> Values:
    return summed_up((((queue,), line.jobs) for queue, line in lines.items()), sum)


def _oldest(lines: Mapping[str, _Line]) -> Values:
    return summed_up((((queue,), line.oldest) for queue, line in lines.items()), min)


def summed_up(
    rows: Iterable[tuple[R, float]], together: Callable[[list[float]], float]
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the first rows by name, and one more with the sum of the others: users must not make the page endless."""
    ordered = sorted(rows)
    yield from ordered[:MAX_ROWS]
    if rest := ordered[MAX_ROWS:]:
        yield (OTHERS,) * len(rest[0][0]), together([number for _, number in rest])


# --- what is held


class _Held(NamedTuple):
    """GPUs that tasks hold, in thousandths, by queue, user and model."""

    milli: Mapping[tuple[str, str, str], int]


def _held(view: View) -> _Held:
    """Return the GPUs that tasks hold."""
    models = {gpu.id: gpu.model for node in view.nodes.values() for gpu in node.gpus}
    milli: Counter[tuple[str, str, str]] = Counter()
    for task in view.tasks.values():
        job = view.jobs.get(task.job_id) if task.job_id and task.gpus and not task.ended else None
        if job is not None:
            milli_of_gpu = WHOLE if task.share is None else task.share.compute_milli
            for gpu in task.gpus:
                milli[job.spec.queue, job.charged_to, models.get(gpu, "")] += milli_of_gpu
    return _Held(milli)


def _allocated(held: _Held) -> Values:
    return summed_up(((key, milli / WHOLE) for key, milli in held.milli.items()), sum)


# --- what is free


class _Model(NamedTuple):
    """GPUs of one model."""

    used: int
    free: int  # healthy and not held
    out: int  # not held, and not usable
    largest: int  # most free ones on one node
    stranded: int  # free ones on nodes where others are used or out


def _models(gpus: Gpus) -> Mapping[str, _Model]:
    """Return the GPUs by model."""
    nodes: dict[tuple[str, AgentId], Counter[str]] = defaultdict(Counter)
    for status in gpus.each:
        state = "used" if status.gpu.id in gpus.used else "free" if status.health is Health.OK else "out"
        nodes[status.gpu.model, status.node.id][state] += 1
    models: dict[str, _Model] = {}
    for (model, _), counts in nodes.items():
        old = models.get(model, _Model(0, 0, 0, 0, 0))
        free, partly = counts["free"], counts["used"] + counts["out"] > 0
        models[model] = _Model(
            old.used + counts["used"],
            old.free + free,
            old.out + counts["out"],
            max(old.largest, free),
            old.stranded + (free if partly else 0),
        )
    return models


def _model_samples(value: Callable[[_Model], float]) -> Callable[[Gpus], Values]:
    """Return a function that makes a sample for each model."""
    return lambda gpus: sorted(((name,), value(model)) for name, model in _models(gpus).items())


def _by_state(gpus: Gpus) -> Values:
    for name, model in sorted(_models(gpus).items()):
        yield (name, "used"), model.used
        yield (name, "free"), model.free
        yield (name, "out"), model.out


# --- apps


class _App(NamedTuple):
    wanted: int
    running: int
    healthy: int


def _apps(view: View) -> Mapping[str, _App]:
    return {
        app.id: _App(
            app.instances,
            sum(job.state is JobState.RUNNING for job in instances_of(view, app.id)),
            len(serving_tasks(view, app.id)),
        )
        for app in view.catalog.root.all_apps()
    }


def _app_samples(value: Callable[[_App], int]) -> Callable[[Mapping[str, _App]], Values]:
    return lambda apps: summed_up((((id,), value(app)) for id, app in apps.items()), sum)


def _deployments(view: View) -> Sequence[float]:
    """Return the times at which the deployments in progress began."""
    return tuple(deployment.version for deployment in view.deployments.values())


CLUSTER: Final = (
    Family(
        "mesos_gpu_build_info",
        "gauge",
        "1: the release of the scheduler, and of Python.",
        lambda _: (__version__, platform.python_version()),
        lambda versions: [(versions, 1)],
        ("version", "python"),
    ),
    Family(
        "mesos_gpu_connected",
        "gauge",
        "1 while the master's events arrive, else 0.",
        lambda v: int(v.connected),
        _unlabelled,
    ),
    Family(
        "mesos_gpu_unsaved",
        "gauge",
        "1 while the state cannot be written, and nothing is launched, else 0.",
        lambda view: int(bool(view.unsaved)),
        _unlabelled,
    ),
    Family(
        "mesos_gpu_nodes",
        "gauge",
        "Agents by state.",
        _nodes,
        lambda nodes: [((state,), number) for state, number in nodes.items()],
        ("state",),
    ),
    Family(
        "mesos_gpu_nodes_backed_off",
        "gauge",
        "Agents whose executors did not register in time, and that get few or no launches until one does.",
        _backed_off,
        _unlabelled,
    ),
    Family(
        "mesos_gpu_nodes_outside_levels",
        "gauge",
        "Agents left out of the levels of the fabric, as their attributes contradict those of other agents.",
        _outside_levels,
        _unlabelled,
    ),
    Family(
        "mesos_gpu_monitors_outdated",
        "gauge",
        "Nodes whose monitor runs an older program and must be replaced.",
        _rolling,
        lambda roll: _unlabelled(len(roll.outdated)),
    ),
    Family(
        "mesos_gpu_monitors_stuck",
        "gauge",
        "Nodes whose new monitor has sent no good report; no further monitors are replaced.",
        _rolling,
        lambda roll: _unlabelled(len(roll.problems)),
    ),
    Family(
        "mesos_gpu_waiting_jobs",
        "gauge",
        "Waiting jobs by reason: room, a limit or rule, back-off, secrets; unasked: too far back in the queue order.",
        _reasons,
        lambda reasons: sorted(((reason,), count) for reason, count in reasons.items() if count),
        ("reason",),
    ),
    Family(
        "mesos_gpu_queue_jobs", "gauge", "Jobs of a queue that wait.", _waiting_by_queue, _waiting, ("queue",)
    ),
    Family(
        "mesos_gpu_queue_oldest_timestamp_seconds",
        "gauge",
        "When the job of a queue that waits longest came into line, seconds since the epoch.",
        _waiting_by_queue,
        _oldest,
        ("queue",),
    ),
    Family(
        "mesos_gpu_allocated_gpus",
        "gauge",
        "GPUs that tasks hold, shares as parts of one.",
        _held,
        _allocated,
        ("queue", "user", "model"),
    ),
    Family(
        "mesos_gpu_model_gpus", "gauge", "GPUs of a model, by state.", gpus_of, _by_state, ("model", "state")
    ),
    Family(
        "mesos_gpu_model_largest_free_gpus",
        "gauge",
        "The most GPUs of a model that are free on one node.",
        gpus_of,
        _model_samples(lambda model: model.largest),
        ("model",),
    ),
    Family(
        "mesos_gpu_model_fragmentation_ratio",
        "gauge",
        "Of the free GPUs of a model, the part on nodes where others of it are used or out; 0 if none is free.",
        gpus_of,
        _model_samples(lambda model: model.stranded / model.free if model.free else 0.0),
        ("model",),
    ),
    Family(
        "mesos_gpu_app_instances_wanted",
        "gauge",
        "Instances that an app wants.",
        _apps,
        _app_samples(lambda app: app.wanted),
        ("app",),
    ),
    Family(
        "mesos_gpu_app_instances_running",
        "gauge",
        "Instances of an app that run.",
        _apps,
        _app_samples(lambda app: app.running),
        ("app",),
    ),
    Family(
        "mesos_gpu_app_instances_healthy",
        "gauge",
        "Instances of an app that run, are ready, and pass the health checks that there are.",
        _apps,
        _app_samples(lambda app: app.healthy),
        ("app",),
    ),
    Family(
        "mesos_gpu_deployments",
        "gauge",
        "Deployments in progress.",
        _deployments,
        lambda begun: _unlabelled(len(begun)),
    ),
    Family(
        "mesos_gpu_deployment_oldest_timestamp_seconds",
        "gauge",
        "When the oldest deployment in progress began, seconds since the epoch.",
        _deployments,
        lambda begun: [((), min(begun))] if begun else [],
    ),
)
