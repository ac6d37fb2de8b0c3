"""Acts of operators on the tree of queues, and of users within it."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from mesos_gpu.engine import events as ev
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    Guarantee,
    Idle,
    IdlePolicy,
    MinRuntime,
    QueueDocument,
    QueueOrder,
    QueueSpec,
    Reclaim,
    Shape,
    Stop,
)
from mesos_gpu.wire.mesos.notice import encode_checkpoint
from tests.chaos.choice import choose
from tests.chaos.idling.use import Doing
from tests.chaos.world import World

T = TypeVar("T")
_MAX_ARRAYS: Final = 4  # unfinished arrays at most
LEAVES: Final = ("a/x", "a/y", "b", "default")
_OWED: Final = (0, 1, 2, 4)
_LIMITS: Final = (None, None, None, 1, 2, 4)
_NOTICES: Final = (None, 0.0, 5.0, 20.0)
_RECLAIMS: Final = (Reclaim.ANY, Reclaim.ANY, None, Reclaim.LOWER, Reclaim.NEVER)
_RUNTIMES: Final = (None, None, MinRuntime(15.0, 30.0))
_COSTS: Final[tuple[Mapping[str, int], ...]] = ({}, {}, {"A100": 2})
_STARVES_S: Final = 30.0  # shorter than a quiet time, which takes some minutes
#: Messages of executors: true, false and malformed checkpoints.
_CHECKPOINTS: Final = (
    encode_checkpoint(0.0),
    encode_checkpoint(0.0),
    encode_checkpoint(3.0),
    encode_checkpoint(1e6),
    encode_checkpoint(-5.0),
    b'{"checkpoint":{"ago_s":"soon"}}',
)


_QUICK: Final = Idle(
    warn_after_s=30.0, return_after_s=60.0, resume_s=20.0, start_grace_s=0.0, max_keep_s=300.0
)
_RULES: Final = tuple(
    replace(_QUICK, policy=policy, requeue=requeue, resume_s=resume_s)
    for policy in (IdlePolicy.ALWAYS, IdlePolicy.PRESSURE, IdlePolicy.REPORT)
    for requeue, resume_s in ((False, 120.0), (True, 5.0), (True, 120.0))
)
_LONG_NOTICE_S: Final = 45.0  # long enough for a job to resume work for some windows
_KEEPS_S: Final = (20.0, 60.0, 120.0, 300.0, 900.0)  # the last exceeds the maximum
#: Mostly idle, because only long idleness has consequences.
_DOINGS: Final = (Doing.IDLE, Doing.IDLE, Doing.IDLE, Doing.NOW_AND_THEN, Doing.BUSY, Doing.UNTOLD)


class _Digits:
    """A sequence of choices by the digits of a number."""

    def __init__(self, number: int) -> None:
        """Begin with the last digit."""
        self._left = number

    def of(self, items: tuple[T, ...]) -> T:
        """Return the item that the next digit chooses."""
        self._left, at = divmod(self._left, len(items))
        return items[at]


def _amount(gpus: int | None) -> Mapping[str, int]:
    return {} if gpus is None else {DEFAULT_POOL: gpus * WHOLE}


def _owed(gpus: int, nodes: int = 0) -> Mapping[str, Guarantee]:
    if not gpus:
        return {}
    shapes = (Shape(nodes, gpus // nodes),) if nodes and gpus % nodes == 0 else ()
    return {DEFAULT_POOL: Guarantee(gpus * WHOLE, shapes)}


def document_of(a: int, b: int) -> QueueDocument:
    """Return a tree of two levels, always with equal names but other guarantees, limits and stops of queues."""
    first, second = _Digits(a), _Digits(b >> 3)  # the last bits choose whether the event is passed at once
    own, other, surplus = first.of(_OWED), first.of(_OWED), first.of((0, 0, 2))
    shapes, limit = first.of((0, 1, 2)), first.of(_LIMITS)
    inner = QueueSpec(
        guarantee_gpus=_owed(own + surplus),
        limit_gpus=_amount(first.of(_LIMITS)),
        fence=first.of((False, False, False, True)),
        notice_s=first.of(_NOTICES),
        min_runtime_s=second.of(_RUNTIMES),
        stop=second.of((Stop.NONE, Stop.NONE, Stop.NONE, Stop.NONE, Stop.NONE, Stop.HOLD)),
    )
    las = QueueSpec(
        guarantee_gpus=_owed(other),
        limit_gpus=_amount(limit),
        borrow_limit_gpus=_amount(second.of((None, None, 0, 1))),
        order=second.of((None, QueueOrder.LAS)),
        reclaim=second.of(_RECLAIMS),
        notice_s=second.of(_NOTICES),
        stop=second.of((Stop.NONE, Stop.NONE, Stop.NONE, Stop.NONE, Stop.DRAIN)),
    )
    queues = {
        "default": QueueSpec(weight=second.of((1, 3))),
        "small": QueueSpec(limit_gpus=_amount(2)),
        "a": inner,
        "a/x": QueueSpec(guarantee_gpus=_owed(own, shapes), reclaim=second.of(_RECLAIMS)),
        "a/y": QueueSpec(limit_gpus=_amount(second.of(_LIMITS))),
        "b": las,
    }
    queues = {path: replace(spec, starve_after_s=_STARVES_S) for path, spec in queues.items()}
    return QueueDocument(by="me", queues=queues, gpu_cost=second.of(_COSTS), overbook=True)


def _change(world: World, a: int, b: int) -> None:
    """Write another tree, now and then with a wrong version."""
    document = document_of(a, b)
    version = world.state.quota.queues.version + (b % 7 == 6)
    words = "; ".join(f"{path}: {_short(spec)}" for path, spec in document.queues.items())
    world.say(f"an operator writes queues, after version {version}: {words}; cost {dict(document.gpu_cost)}")
    world.inbox.append(ev.QueuesChanged(document, version))


def resume(world: World) -> None:
    """Resume queues that are stopped."""
    document = world.state.quota.queues
    if any(spec.stop is not Stop.NONE for spec in document.queues.values()):
        served = {path: replace(spec, stop=Stop.NONE) for path, spec in document.queues.items()}
        world.inbox.append(ev.QueuesChanged(replace(document, queues=served), document.version))


def _short(spec: QueueSpec) -> str:
    """Describe the fields of a queue that differ from the defaults."""
    plain = QueueSpec()
    names = [name for name in QueueSpec.__slots__ if getattr(spec, name) != getattr(plain, name)]
    return ", ".join(f"{name} {_plain(getattr(spec, name))}" for name in names) or "nothing"


def _plain(value: object) -> str:
    if isinstance(value, Mapping) and set(value) == {DEFAULT_POOL}:
        (value,) = value.values()
    if isinstance(value, Guarantee):
        shapes = ", ".join(f"{shape.nodes} x {shape.gpus}" for shape in value.shapes)
        return f"{value.milli}" + f" ({shapes})" * bool(shapes)
    return str(getattr(value, "value", value))


def _checkpoint(world: World, a: int, b: int) -> None:
    """Send a true, false or malformed checkpoint of a task."""
    runs = [run for run in world.mesos.alive() if run.job_id and run.stage == "TASK_RUNNING"]
    run = choose(world, runs, a, lambda run: run.job_id or "")
    if run is not None:
        data = _CHECKPOINTS[b % len(_CHECKPOINTS)]
        world.say(f"{run.id} says {data.decode()}")
        world.mesos.emit(run, "TASK_RUNNING", data)


def _steps(world: World, a: int, b: int) -> None:
    """Let the clock jump ahead by seconds to a day."""
    seconds = (7.5, 400.0, 3600.0, 90_000.0)[a % 4]
    world.say(f"the clock steps by {seconds:g} s")
    world.pass_time(seconds)


_ARRAYS: Final = ("0-5%2", "0-3", "1,4,9%1", "0-9%3", "0-8:2%2", "7")
_RANGES: Final = (None, "0-2", "1-9", "4", "3-5,9", "0-8:4")


def _submit_array(world: World, a: int, b: int) -> None:
    """Submit a job array."""
    if len(world.state.work.members.jobs) >= _MAX_ARRAYS:
        return
    digits = _Digits(a)
    array_id = JobId(world.target or world.new_id("s-"))
    world.chosen.append(array_id)
    spec = JobSpec(
        "s",
        command="true",
        array=digits.of(_ARRAYS),
        gpus=digits.of((0, 1, 1, 2)),
        cpus=0.1,
        max_attempts=digits.of((1, 1, 3)),
        tasks=digits.of((1, 1, 1, 1, 2)),
        preemptible=digits.of((False, True)),
        queue=digits.of(LEAVES),
    )
    world.say(f"array {array_id} is submitted: {spec.array}, {spec.tasks} tasks of {spec.gpus} GPUs each")
    world.inbox.append(ev.JobSubmitted(array_id, spec))


def _kill_tasks(world: World, a: int, b: int) -> None:
    """Kill some tasks of an array, or all."""
    array = choose(
        world, [each for each in world.state.work.arrays.values() if each.ended_at is None], a, _id_of
    )
    if array is not None:
        indexes = _RANGES[b % len(_RANGES)]
        world.say(f"a user kills {indexes or 'all'} of array {array.id}")
        world.inbox.append(ev.ArrayKillRequested(array.id, indexes))


def _id_of(array: JobArray) -> str:
    return array.id


def with_idle_rules(plain: QueueDocument, dice: random.Random) -> QueueDocument:
    """Return a tree with rules of idle GPUs, and with longer notices, in some queues."""
    queues = {
        path: replace(
            spec,
            idle=dice.choice((None, *_RULES, *_RULES[:3])),
            notice_s=dice.choice((spec.notice_s, _LONG_NOTICE_S)),
        )
        for path, spec in plain.queues.items()
    }
    return replace(plain, queues=queues)


def _change_idle(world: World, a: int, b: int) -> None:
    """Write another tree with rules of idle GPUs."""
    document = with_idle_rules(document_of(a, b), random.Random(a << 24 | b >> 3))
    words = ", ".join(
        f"{path} {each.idle.policy.value}" for path, each in document.queues.items() if each.idle
    )
    world.say(f"an operator writes queues with rules of idle GPUs: {words or 'none'}")
    world.inbox.append(ev.QueuesChanged(document, world.state.quota.queues.version))


def _do(world: World, a: int, b: int) -> None:
    """Let a launch idle, work, or be unknown from now on."""
    runs = [run for run in world.mesos.alive() if run.job_id and run.item.task.gpus]
    run = choose(world, runs, a, lambda run: run.job_id or "")
    if run is not None:
        doing = _DOINGS[b % len(_DOINGS)]
        world.say(f"{run.id} is {doing.value} from now on")
        world.mesos.use.change(run.id, doing, world.now)


def _wake(world: World, a: int, b: int) -> None:
    """Let a launch with a notice resume work, mostly one that ends soon."""
    told = [
        run for run in world.mesos.alive() if (task := world.state.work.tasks.get(run.id)) and task.notice
    ]
    ending = [run for run in told if (notice := world.state.work.tasks[run.id].notice) and notice.stands]
    run = choose(world, ending or told, a, lambda run: run.job_id or "")
    if run is not None:
        world.say(f"{run.id} wakes")
        world.mesos.use.change(run.id, Doing.BUSY, world.now)


def _keep(world: World, a: int, b: int) -> None:
    """Ask to keep a job, mostly one with a notice, or withdraw the request."""
    runs = [run for run in world.mesos.alive() if run.job_id]
    told = [run for run in runs if (task := world.state.work.tasks.get(run.id)) and task.notice]
    run = choose(world, told or runs, a, lambda run: run.job_id or "")
    if run is None or run.job_id is None:
        return
    if b % 5 == 0:
        world.say(f"{run.job_id} need not be kept any longer")
        world.inbox.append(ev.KeepWithdrawn(run.job_id))
    else:
        for_s = _KEEPS_S[b // 5 % len(_KEEPS_S)]
        world.say(f"{run.job_id} is to be kept for {for_s:g} s")
        world.inbox.append(ev.KeepAsked(run.job_id, for_s, None, "me"))


def _monitor_dies(world: World, a: int, b: int) -> None:
    """End a node's monitor, whose successor starts new counts."""
    monitors = [run for run in world.mesos.alive() if run.is_monitor and run.stage == "TASK_RUNNING"]
    run = choose(world, monitors, a, lambda run: run.agent.hostname)
    if run is not None:
        world.say(f"the monitor {run.id} dies")
        world.mesos.update(run, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")


ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], None]]]] = {
    "change queues": (0.0, _change),
    "checkpoint": (0.5, _checkpoint),
    "clock steps": (0.05, _steps),
    "submit array": (0.0, _submit_array),
    "kill tasks": (0.0, _kill_tasks),
    "change idle rules": (0.0, _change_idle),
    "do": (0.0, _do),
    "wake": (0.0, _wake),
    "keep": (0.0, _keep),
    "monitor dies": (0.0, _monitor_dies),
}
