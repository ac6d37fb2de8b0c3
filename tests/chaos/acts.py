"""Random events of the simulation (acts), each determined by two numbers, so that a list of them can be replayed.

An act does nothing if it finds no object.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import Job, JobSpec, OnGpuFailure, OnMemberFailure
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from tests.chaos import apps, queues, switches, terms
from tests.chaos.account import job_of
from tests.chaos.choice import choose
from tests.chaos.documents import bookings, lending, timetable
from tests.chaos.settle import go_on, settle
from tests.chaos.virtual import Agent, Facts, Run
from tests.chaos.world import DRIVERS, MODELS, World

_MAX_JOBS: Final = 12  # unfinished jobs at most
_FAILURES: Final = tuple(OnGpuFailure)
_HEALTHS: Final = tuple(Health)
_TASKS: Final = (1, 1, 1, 1, 2, 3)
_MEMBERS: Final = tuple(OnMemberFailure)
_UNIQUE: Final = (Constraint("hostname", Operator.UNIQUE),)
_FIRST: Final = (Constraint("hostname", Operator.CLUSTER, "a0.example"),)
_BONDS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {},
    {},
    {"app": "web"},
    {"app": "web", "constraints": _UNIQUE},
    {"constraints": _FIRST},
    {"app": "db", "away": "web"},
)
_SHARES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {},
    {},
    {},
    {"gpus": 1, "gpu_milli": 250},
    {"gpus": 1, "gpu_milli": 500},
    {"gpu_compute_pct": 30, "gpu_memory_mib": 6000},
    {"gpu_compute_pct": 70, "gpu_memory_mib": 2000},
)
_USERS: Final = (None, "alice", "bob")
_MIN: Final = (None, None, None, None, "470", "535", "550.54")


@dataclass(frozen=True, slots=True)
class Act:
    """An event of the simulation: its name in `ACTS`, and two numbers that choose the object and the details.

    With a `target` it happens to that object, whatever the first number chooses: so it stays the same event when
    earlier acts are left out.
    """

    name: str
    a: int
    b: int
    target: str | None = None


def _job(world: World, number: int) -> Job | None:
    return choose(world, world.waiting_or_running() + world.instances(), number, lambda job: job.id)


def _agent(world: World, number: int) -> Agent | None:
    return choose(world, list(world.mesos.agents.values()), number, lambda agent: agent.hostname)


def _gpu(world: World, number: int) -> tuple[Agent, GpuId] | None:
    every = [(agent, gpu.id) for agent in world.mesos.agents.values() for gpu in agent.gpus]
    return choose(world, every, number, lambda pair: pair[1])


def _run(world: World, runs: Sequence[Run], number: int) -> Run | None:
    return choose(world, runs, number, lambda run: run.job_id or run.agent.hostname)


def _mail(world: World, number: int) -> ev.Event | None:
    event = choose(world, world.mesos.mail, number, _letter)
    if event is not None:
        world.mesos.mail.remove(event)
    return event


def _letter(event: ev.Event) -> str:
    match event:
        case ev.StatusArrived(status):
            kind, _, rest = status.task_id.partition(".")
            whose = job_of(status.task_id)
            if kind in ("gpu-monitor", "gpu-cover"):
                whose = JobId(f"{rest.split('.')[0]}.example" if kind == "gpu-monitor" else rest)
            return f"{whose} {status.state} {status.uuid is None}"
        case ev.AgentLost(agent_id):
            return f"loss of {agent_id}"
    return type(event).__name__


# --- users and operators


def _new_job(world: World) -> JobId | None:
    """Return the id of a new job, or None if there are too many jobs."""
    if len(world.waiting_or_running()) >= _MAX_JOBS:
        return None
    job_id = JobId(world.target) if world.target else world.new_id("j")
    world.chosen.append(job_id)
    return job_id


def _submit(world: World, a: int, b: int) -> None:
    job_id = _new_job(world)
    if job_id is None:
        return
    spec = JobSpec(
        name=job_id,
        command="true",
        gpus=(0, 1, 1, 1, 2, 2, 3, 4)[a % 8],
        gpu_model=((), (), (), MODELS, MODELS[:1], MODELS[1:])[a // 8 % 6],
        cpus=(0.1, 0.5, 2.0)[a // 48 % 3],
        mem_mib=(32, 512, 4096)[a // 144 % 3],
        max_attempts=1 + b % 3,
        on_gpu_failure=_FAILURES[b // 3 % len(_FAILURES)],
        min_driver=_MIN[b // 9 % len(_MIN)],
        timeout_s=(None, None, 20.0, 600.0)[a // 432 % 4],
        priority=(0, 0, 0, 5, -5)[a // 1728 % 5],
        queue=("default", "default", "small")[a // 8640 % 3],
        tasks=_TASKS[b // 441 % len(_TASKS)],
        preemptible=b // 2646 % 2 == 1,
        on_member_failure=_MEMBERS[b // 5292 % 2],
        **_BONDS[b // 10584 % len(_BONDS)],
    )
    share = _SHARES[b // 74088 % len(_SHARES)]
    if share and spec.gpus:
        spec = replace(
            spec, **{"gpus": min(spec.gpus, 2), "user": _USERS[b // 592704 % len(_USERS)], **share}
        )
    _hand_in(world, spec, _MIN[b // 63 % len(_MIN)])


def _submit_share(world: World, a: int, b: int) -> None:
    """Submit a job with a share of a card that fits almost everywhere, so that cards fill with shares."""
    job_id = _new_job(world)
    if job_id is None:
        return
    spec = JobSpec(
        name=job_id,
        command="true",
        cpus=0.1,
        mem_mib=32,
        max_attempts=1 + a % 3,
        on_gpu_failure=_FAILURES[a // 3 % len(_FAILURES)],
        queue=("default", "small")[a // 9 % 2],
        priority=(0, 0, 5)[a // 18 % 3],
        preemptible=a // 54 % 2 == 1,
        tasks=_TASKS[b % len(_TASKS)],
        user=_USERS[b // 6 % len(_USERS)],
        **{"gpus": 1 + b // 18 % 4 // 3, **_SHARES[4 + b // 72 % 4]},
    )
    _hand_in(world, spec, None)


def _submit_to_queue(world: World, a: int, b: int) -> None:
    """Submit a job to the tree of queues, mostly preemptible and with whole GPUs."""
    job_id = _new_job(world)
    if job_id is not None:
        _hand_in(world, _in_queue(job_id, a, b), None)


def _submit_in_class(world: World, a: int, b: int) -> None:
    """Submit a job of a user to the tree of queues, mostly of a class, authenticated or not."""
    job_id = _new_job(world)
    if job_id is None:
        return
    name = (None, *(each.name for each in terms.CLASSES))[b // 8 % (len(terms.CLASSES) + 1)]
    user = terms.USERS[a // 256 % len(terms.USERS)]
    spec = replace(_in_queue(job_id, a, b // 32), job_class=name, user=user)
    _hand_in(world, spec, None, user if a // 512 % 3 else "")


def _submit_for_booking(world: World, a: int, b: int) -> None:
    """Submit a job to the queue of a booking, which mostly requests the booking."""
    job_id = _new_job(world)
    asked = None if job_id is None else bookings.job_for(world, job_id, a, b)
    if asked is not None:
        _hand_in(world, asked[0], None, asked[1])


def _in_queue(job_id: JobId, a: int, b: int) -> JobSpec:
    return JobSpec(
        name=job_id,
        command="true",
        cpus=0.1,
        mem_mib=32,
        gpus=(1, 1, 2, 3)[a % 4],
        tasks=(1, 1, 1, 2)[a // 4 % 4],
        queue=queues.LEAVES[a // 16 % len(queues.LEAVES)],
        preemptible=a // 64 % 4 > 0,
        priority=(0, 0, 0, 5)[b % 4],
        gpu_model=((), (), (), MODELS, MODELS[:1])[b // 4 % 5],
        timeout_s=(None, None, None, 600.0)[b // 20 % 4],
        notice_s=(None, None, 0.0, 10.0)[b // 80 % 4],
        max_attempts=1 + b // 320 % 3,
    )


def _hand_in(world: World, spec: JobSpec, needs: str | None, owner: str = "") -> None:
    job_id = JobId(spec.name)
    world.mesos.facts[job_id] = Facts(needs)
    world.say(f"{job_id} is submitted: {_asked(spec)}")
    world.inbox.append(ev.JobSubmitted(job_id, spec, owner))


def _asked(spec: JobSpec) -> str:
    part = f"shares {spec.compute_milli} and {spec.gpu_memory_mib} MiB of " if spec.is_share else ""
    words = f"{spec.tasks} tasks of {part}{spec.gpus} GPUs, {spec.max_attempts} attempts, queue {spec.queue}"
    words += f", priority {spec.priority}" + (", preemptible" if spec.preemptible else "")
    words += f", class {spec.job_class}" if spec.job_class else ""
    words += f", booking {spec.booking}" if spec.booking else ""
    bonds = [str(constraint) for constraint in spec.constraints] + (
        [f"away from {spec.away}"] if spec.away else []
    )
    return words + (f", app {spec.app}: {' and '.join(bonds)}" if bonds else "")


def _kill(world: World, a: int, b: int) -> None:
    if job := _job(world, a):
        world.say(f"a user kills {job.id}")
        world.inbox.append(ev.KillRequested(job.id))


def _resize(world: World, a: int, b: int) -> None:
    """Request a resize of a job's share, rarely for a job without one."""
    shared = [run for run in world.mesos.alive() if run.item.task.share and run.stage == "TASK_RUNNING"]
    run = _run(world, shared, a) if shared else None
    job = (
        world.state.work.jobs.get(run.job_id)
        if run and run.job_id
        else _job(world, a)
        if b % 16 == 0
        else None
    )
    if job and b % 9 == 0:
        world.say(f"a user withdraws the resize of {job.id}")
        world.inbox.append(ev.ResizeWithdrawn(job.id))
    elif job:
        patch: dict[str, int | None] = {}
        if a % 3:
            patch["gpu_memory_mib"] = (500, 4000, 12000, 30000, 70000)[b % 5]
        if a % 3 != 1:
            patch["gpu_compute_pct"] = (5, 25, 40, 75, 100)[b // 5 % 5]
        world.say(f"a user wants {patch} for {job.id}")
        world.inbox.append(ev.ResizeRequested(job.id, patch, restart=b // 25 % 4 == 0))


def _deafen(world: World, a: int, b: int) -> None:
    """Let an executor ignore requests to resize from now on, while its task runs."""
    shared = [run for run in world.mesos.alive() if run.item.task.share and not run.deaf]
    if run := _run(world, shared, a):
        world.say(f"the executor of {run.id} hears of no resize any more")
        run.deaf = True


def _place(world: World, a: int, b: int) -> tuple[Target, str] | None:
    if b % 4 == 0:
        agent = _agent(world, a)
        return (Target.NODE, agent.hostname) if agent else None
    place = _gpu(world, a)
    return (Target.GPU, place[1]) if place else None


def _drain(world: World, a: int, b: int) -> None:
    deadline_s = (None, 0.0, 10.0)[b // 4 % 3]
    if place := _place(world, a, b):
        world.say(f"an operator drains {place[1]}, deadline {deadline_s}")
        world.inbox.append(ev.DrainRequested(*place, "why", "me", deadline_s))


def _undrain(world: World, a: int, b: int) -> None:
    drained = list(world.state.cluster.drains)
    place = choose(world, drained, a, lambda place: place[1]) if drained else _place(world, a, b)
    if place:
        world.say(f"an operator gives {place[1]} back")
        world.inbox.append(ev.UndrainRequested(*place))


def _reset(world: World, a: int, b: int) -> None:
    if card := _gpu(world, a):
        world.say(f"an operator wants {card[1]} reset")
        world.inbox.append(ev.ResetRequested(card[1], world.new_id("r"), "why"))


# --- messages


def _deliver(world: World, a: int, b: int) -> None:
    """Deliver the oldest message, or now and then another one, so that updates overtake each other."""
    if event := _mail(world, a if b % 4 == 0 else 0):
        world.say(f"arrives: {_said(event)}")
        world.inbox.append(event)


def _deliver_many(world: World, a: int, b: int) -> None:
    for _ in range(2 + a % 8):
        _deliver(world, b >> 3, b)


def _lose(world: World, a: int, b: int) -> None:
    if event := _mail(world, a):
        world.say(f"is lost: {_said(event)}")


def _repeat(world: World, a: int, b: int) -> None:
    if event := _mail(world, a):
        world.say(f"is sent twice: {_said(event)}")
        world.mesos.mail += [event] if isinstance(event, ev.OffersArrived) else [event, event]


def _resend(world: World, a: int, b: int) -> None:
    if run := _run(world, [run for run in world.mesos.runs.values() if run.outbox], a):
        world.say(f"{run.agent.id} repeats {run.outbox[0].state} of {run.id}")
        world.mesos.resend(run)


def _calls_are_lost(world: World, a: int, b: int) -> None:
    world.lossy = a % 256


def _said(event: ev.Event) -> str:
    match event:
        case ev.StatusArrived(status):
            again = "" if status.uuid else " (reconciled)"
            return f"{status.state} of {status.task_id}{again}"
        case ev.OfferRescinded(offer_id):
            return f"rescind of {offer_id}"
        case ev.AgentLost(agent_id):
            return f"loss of {agent_id}"
    return type(event).__name__


# --- offers and the connection


def _offer(world: World, a: int, b: int) -> None:
    agent = _agent(world, a)
    if agent and (event := world.mesos.offer(agent)):
        world.say(f"{agent.id} is offered: {event.offers[0].id}")
        world.inbox.append(event)


def _rescind(world: World, a: int, b: int) -> None:
    offers = world.mesos.offers
    if offer_id := choose(world, list(offers), a, lambda offer_id: offers[offer_id][0].hostname):
        world.say(f"{offer_id} is rescinded")
        world.mesos.rescind(offer_id)


def _disconnect(world: World, a: int, b: int) -> None:
    """Break the connection; it comes back at once or later, perhaps to a new master without agents."""
    world.say("the connection breaks" + (": another master leads" if b % 3 == 0 else ""))
    world.mesos.disconnect()
    world.inbox.append(ev.Disconnected())
    if b % 3 == 0:
        for agent in world.mesos.agents.values():
            agent.hidden_until = world.now + 1 + a % 20
    if b % 2 == 0:
        world.connect()


def _connect(world: World, a: int, b: int) -> None:
    if not world.mesos.connected:
        world.say("the connection is back")
        world.connect()


def _restart(world: World, a: int, b: int) -> None:
    """Kill the scheduler, or let its disk be full for some time, or both."""
    crash, full_s = ("before", "after")[a % 2], (0.0, 0.0, 3.0, 20.0)[a // 2 % 4]
    if full_s and a // 8 % 2:
        crash = ""
    if full_s:
        world.say(f"the disk is full: for {full_s:g} s nothing is saved")
    if crash:
        release = ", as another release" if b % 3 == 0 else ""
        world.say(f"the scheduler is killed {crash} a save, and starts again{release}")
    world.flush(crash, full_s)
    if crash and b % 3 == 0:
        world.be_release(b)


# --- agents, their executors and GPUs


def _progress(world: World, a: int, b: int) -> None:
    if run := _run(world, world.mesos.alive(), a):
        was = run.stage
        if world.progress(run, b) != was:
            world.say(f"{run.id} on {run.agent.id}: {was} → {run.stage}")


def _keeper_dies(world: World, a: int, b: int) -> None:
    """End the executor of cover tasks, which hold the shared cards of an agent, and these tasks with it."""
    covers = [run for run in world.mesos.alive() if run.item.task.covers is not None]
    if run := _run(world, covers, a):
        world.say(f"the keeper of {run.agent.id} dies")
        for each in world.mesos.covers_on(run.agent):
            if each.item.task.executor_id == run.item.task.executor_id:
                world.mesos.update(each, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")


def _other(world: World, a: int, b: int) -> None:
    """Let another framework take the free GPUs of an agent, or give them back."""
    if agent := _agent(world, a):
        if b % 2 and agent.free["gpus"]:
            world.say(f"another framework takes {agent.free['gpus']:g} GPUs of {agent.id}")
            world.mesos.other_takes(agent)
        elif agent.others:
            world.say(f"another framework is done with the GPUs of {agent.id}")
            world.mesos.other_leaves(agent)


def _refuse(world: World, a: int, b: int) -> None:
    """Let an executor find an unknown claim on its GPUs."""
    staging = [r for r in world.mesos.alive() if r.stage == "TASK_STAGING" and r.item.task.gpus]
    if run := _run(world, staging, a):
        world.say(f"the executor of {run.id} finds a claim on its GPU, and refuses")
        _refused(world, run)


def _refused(world: World, run: Run) -> None:
    gpu_id = run.item.task.gpus[0]
    if gpu_id in run.agent.shares:
        return  # a task with a share of the card is known
    run.agent.claims.setdefault(gpu_id, run.id)
    world.mesos.start(run)


def _flap(world: World, a: int, b: int) -> None:
    if card := _gpu(world, a):
        agent, gpu_id = card
        health = Health.OK if b % 2 else _HEALTHS[b // 2 % len(_HEALTHS)]
        world.say(f"{gpu_id} turns {health.value}")
        world.mesos.set_health(agent, gpu_id, health, "said so")
        world.mesos.report(agent)


def _garble(world: World, a: int, b: int) -> None:
    if agent := _agent(world, a):
        world.say(f"the monitor of {agent.id} reports nonsense")
        world.mesos.report(agent, b"{")


def _miss(world: World, a: int, b: int) -> None:
    """Send one report of a monitor in which a GPU is missing."""
    if card := _gpu(world, a):
        agent, gpu_id = card
        world.say(f"the monitor of {agent.id} does not find {gpu_id}")
        world.mesos.report(agent, gpus=tuple(gpu for gpu in agent.gpus if gpu.id != gpu_id))


def _cut(world: World, a: int, b: int) -> None:
    agent = _agent(world, a)
    if agent and not agent.cut:
        world.say(f"{agent.id} is cut off")
        world.mesos.lose(agent)


def _die(world: World, a: int, b: int) -> None:
    """Cut the power of a host, whose agent comes back with its old id or a new one."""
    if agent := _agent(world, a):
        world.say(f"the host of {agent.id} loses its power")
        world.mesos.die(agent)
        if b % 3 == 0:
            new = world.mesos.rename(agent)
            world.say(f"it comes back as {new.id}")


def _come_back(world: World, a: int, b: int) -> None:
    cut = [agent for agent in world.mesos.agents.values() if agent.cut]
    if agent := choose(world, cut, a, lambda agent: agent.hostname):
        world.say(f"{agent.id} is back")
        world.mesos.come_back(agent)


def _upgrade(world: World, a: int, b: int) -> None:
    """Change the driver of a host without tasks to another version."""
    agent = _agent(world, a)
    if agent and not (agent.claims or agent.shares or agent.cut):
        agent.driver = DRIVERS[b % len(DRIVERS)]
        world.say(f"{agent.id} has driver {agent.driver} now")
        world.mesos.report(agent)


def _time(seconds: Sequence[float]) -> Callable[[World, int, int], None]:
    def act(world: World, a: int, b: int) -> None:
        world.pass_time(seconds[a % len(seconds)])

    return act


#: Weight and function of each act, by name.
ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], None]]]] = {
    "submit": (7, _submit),
    "kill": (2, _kill),
    "submit share": (2, _submit_share),
    "resize": (3, _resize),
    "deafen": (0.2, _deafen),
    "drain": (0.7, _drain),
    "undrain": (0.8, _undrain),
    "reset": (0.6, _reset),
    "deliver": (22, _deliver),
    "deliver many": (7, _deliver_many),
    "lose": (1, _lose),
    "repeat": (4, _repeat),
    "resend": (3, _resend),
    "calls are lost": (2, _calls_are_lost),
    "offer": (10, _offer),
    "rescind": (1.5, _rescind),
    "disconnect": (0.3, _disconnect),
    "connect": (2, _connect),
    "restart": (0.4, _restart),
    "progress": (22, _progress),
    "refuse": (0.3, _refuse),
    "keeper dies": (0.5, _keeper_dies),
    "other": (0.8, _other),
    "flap": (1, _flap),
    "garble": (0.1, _garble),
    "miss": (0.3, _miss),
    "cut": (0.4, _cut),
    "die": (0.2, _die),
    "come back": (1, _come_back),
    "upgrade": (0.2, _upgrade),
    "moment": (8, _time((0.1, 0.3, 1.0))),
    "while": (3, _time((3.0, 5.0, 10.0))),
    "long": (0.3, _time((30.0, 60.0, 130.0))),
    "go on": (0.5, lambda world, a, b: go_on(world, checks=a % 4 > 0)),
    "settle": (0.2, lambda world, a, b: settle(world)),
    "submit to queue": (0.0, _submit_to_queue),
    **queues.ACTS,
    **apps.ACTS,
    **terms.ACTS,
    **timetable.ACTS,
    **bookings.ACTS,
    "submit for booking": (0.0, _submit_for_booking),
    **switches.ACTS,
    "submit in class": (0.0, _submit_in_class),
    **lending.ACTS,
}


def do(world: World, act: Act) -> None:
    """Execute an act, and pass its events to the engine, mostly at once, now and then with the next act.

    Raises:
        Violation: An invariant is broken.
    """
    world.target = act.target
    world.chosen.clear()
    ACTS[act.name][1](world, act.a, act.b)
    if act.b % 8 and act.name != "restart":
        world.flush()


def pinned(act: Act, chosen: Sequence[str]) -> list[Act]:
    """Return acts that repeat the last one with the chosen objects as targets, one act for each object."""
    if act.name == "deliver many":
        held = [Act("deliver", act.a, 0, name) for name in chosen]
        return [*held[:-1], *(replace(last, b=act.b) for last in held[-1:])]
    return [replace(act, target=chosen[0])] if chosen else [act]
