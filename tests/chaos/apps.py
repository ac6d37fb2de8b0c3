"""Acts of users on apps, and results of health checks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mesos_gpu.api.marathon import tree
from mesos_gpu.engine import events as ev
from mesos_gpu.model.apps.app import (
    App,
    GpuOptions,
    Group,
    KillSelection,
    PortDefinition,
    ReadinessCheck,
    UnreachableStrategy,
    UpgradeStrategy,
)
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol, Readiness
from mesos_gpu.model.jobs.job import Job, JobState
from tests.chaos.choice import choose
from tests.chaos.world import World

IDS: Final = ("/a", "/b", "/g/c", "/g/h/d")
_SHARES: Final = (0.5, 1.0, 0.0, 0.25)
_UNREACHABLE: Final = (UnreachableStrategy(), None, UnreachableStrategy(10, 30), UnreachableStrategy(60, 300))
_NEEDS: Final = ((), (), (), ("/a",), ("/b",), ("/g",), ("/g/h/d",))
_CHECK: Final = (HealthCheck(Protocol.TCP, port=80),)
_READY: Final = (ReadinessCheck(),)
_HTTP: Final = (PortDefinition(name="http-api"),)
_UNIQUE: Final = (Constraint("hostname", Operator.UNIQUE),)


def _app(id: str, b: int) -> App:
    """Return one of some thousand definitions of an app.

    There are two kinds for each id, so that an update mostly keeps the health checks.
    """
    b >>= 3  # the last bits choose whether the event is passed at once
    kind, b = IDS.index(id) * 2 + b % 2, b // 2
    return App(
        id,
        cmd="serve",
        cpus=0.1,
        mem_mib=32.0,
        instances=b % 5,
        upgrade_strategy=UpgradeStrategy(_SHARES[b // 5 % 4], _SHARES[b // 20 % 4]),
        unreachable_strategy=_UNREACHABLE[b // 80 % 4],
        kill_selection=tuple(KillSelection)[b // 320 % 2],
        dependencies=tuple(each for each in _NEEDS[b // 640 % len(_NEEDS)] if each != id),
        gpus=int(kind in (1, 2)),
        gpu=GpuOptions(in_place=kind == 1, preemptible=b % 2 == 0) if kind in (1, 2) else None,
        port_definitions=_HTTP if kind in (4, 5) else (),
        health_checks=_CHECK if kind in (2, 3, 5) else (),
        readiness_checks=_READY if kind in (4, 5) else (),
        constraints=_UNIQUE if kind == 6 else (),
        env={"B": str(b // 4480 % 8)},
    )


def _begin(world: World, what: str, root: Group, b: int, event: dict[str, object]) -> None:
    """Change the tree of apps, at a time of its own, as with a real clock."""
    world.pass_time(0.001)
    id, force = world.new_id("d"), b // 8 % 2 == 0
    world.say(f"a user {what}: {id}" + (", with force" if force else ""))
    world.inbox.append(ev.AppsChanged(id, root, force, **event))  # type: ignore[arg-type]


def _put(world: World, a: int, b: int) -> None:
    """Create or update an app."""
    id = choose(world, IDS, a, str)
    if id is not None:
        app = _app(id, b)
        _begin(world, f"wants {_said(app)}", tree.with_app(world.state.apps.catalog.root, app), b, {})


def _said(app: App) -> str:
    strategy = app.upgrade_strategy
    words = f"{app.instances} of {app.id} ({strategy.minimum_health_capacity:g}/{strategy.maximum_over_capacity:g}"
    for name in (
        "gpus",
        "health_checks",
        "readiness_checks",
        "dependencies",
        "constraints",
        "unreachable_strategy",
    ):
        if value := getattr(app, name):
            words += f", {name} {value}" if isinstance(value, int) else f", {name}"
    return words + ")"


def _known(world: World, a: int) -> App | None:
    return choose(world, list(world.state.apps.catalog.root.all_apps()), a, lambda app: app.id)


def _scale(world: World, a: int, b: int) -> None:
    """Scale an app, or end chosen instances of it."""
    if app := _known(world, a):
        chosen = list(world.state.apps.instances.get(app.id, ()))[: b // 16 % 3]
        kill = {app.id: tuple(chosen)} if chosen and b // 64 % 2 else {}
        root = world.state.apps.catalog.root
        if kill:
            _begin(world, f"ends {chosen} of {app.id} for good", root, b, {"kill": kill})
        else:
            root = tree.with_app(root, replace(app, instances=b // 128 % 5))
            _begin(world, f"wants {b // 128 % 5} of {app.id}", root, b, {})


def _restart(world: World, a: int, b: int) -> None:
    if app := _known(world, a):
        root = world.state.apps.catalog.root
        _begin(world, f"restarts {app.id}", root, b, {"restarts": frozenset([app.id])})


def _delete(world: World, a: int, b: int) -> None:
    if app := _known(world, a):
        root = world.state.apps.catalog.root
        if b // 16 % 4 == 0:
            _begin(world, "deletes the group /g", tree.without_group(root, "/g"), b, {})
        else:
            _begin(world, f"deletes {app.id}", tree.without_app(root, app.id), b, {})


def _undo(world: World, a: int, b: int) -> None:
    """Roll a deployment back, or stop it in its present state (force)."""
    deployments: list[Deployment] = list(world.state.apps.deployments.values())
    if deployment := choose(world, deployments, a, lambda deployment: deployment.id):
        world.pass_time(0.001)
        id, force = world.new_id("d"), b // 8 % 2 == 0
        world.say(f"a user {'ends' if force else 'undoes'} deployment {deployment.id} by {id}")
        world.inbox.append(ev.DeploymentDeleted(deployment.id, id, force))


def _running(world: World, a: int) -> Job | None:
    jobs = [
        job
        for job in world.instances()
        if job.state is JobState.RUNNING and (job.checked or job.proves_ready)
    ]
    return choose(world, jobs, a, lambda job: job.id)


def _check(world: World, a: int, b: int) -> None:
    """Report a health check of an instance: healthy, unhealthy, or unhealthy for too long."""
    if job := _running(world, a):
        check(world, job, (True, True, True, True, False, False)[b // 8 % 6], kill=b // 48 % 4 == 0)


def check(world: World, job: Job, well: bool, *, kill: bool = False) -> None:
    """Report readiness and health of a running instance; `kill` ends an unhealthy one."""
    assert job.task_id is not None, "it runs"
    if job.proves_ready:
        world.inbox.append(ev.ReadinessFound(job.task_id, Readiness("readinessCheck", well)))
    if job.checked:
        why = "it does not answer" if kill and not well else ""
        world.inbox.append(ev.HealthFound(job.task_id, well, kill=why))
    world.say(f"{job.id} is {'well' if well else 'unwell'}{', and must go' * (kill and not well)}")


#: As `acts.ACTS`.
ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], None]]]] = {
    "put app": (2.5, _put),
    "scale app": (1.5, _scale),
    "restart app": (0.5, _restart),
    "delete app": (1.0, _delete),
    "undo deployment": (1.2, _undo),
    "check": (6, _check),
}
