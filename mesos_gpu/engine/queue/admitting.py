"""Admission of a job: defaults from its class and queue, and the check whether it could ever start."""

from collections.abc import Iterator
from typing import Final

from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.charges import tree_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotAccepted, TooMuch
from mesos_gpu.model.apps.app import PASSED_ON, App, same_but_scale
from mesos_gpu.model.arrays.indexes import parsed
from mesos_gpu.model.jobs.constraint import HOST
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.tenancy import EVERYBODY, ROOT
from mesos_gpu.policy.admission.limits import (
    faults,
    faults_together,
    given_to,
    queue_of_app,
    scopes_of,
    too_many_submitted,
)
from mesos_gpu.policy.tenancy.tree import Tree, lineage
from mesos_gpu.policy.times.hours import spans_of_year

#: Fields of an app for fields of a job. An app has no time limit of its own, only that of its queue.
_OF_APPS: Final = {
    "/timeout_s": "/gpu",
    **{f"/{each.key}": f"/gpu/{name}" for name, each in PASSED_ON.items()},
}


def admitted(state: State, settings: Settings, spec: JobSpec, user: str) -> JobSpec:
    """Return a request with defaults from its class and queue.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        spec: Request of the job.
        user: User that is charged.

    Raises:
        NotAccepted: The job could never start; all reasons at once.
        TooMuch: The queue or the user has as many jobs as allowed.
    """
    if fault := topology_fault(state, settings, spec):
        raise NotAccepted([("/topology", fault)], remedy="ask for a level that agents have: mesos-gpu nodes")
    tree = tree_of(state, settings)
    if tree.is_flat and spec.job_class is not None:
        why = f"there is no class {spec.job_class}: no document of queues was applied"
        raise NotAccepted([("/class", why)], remedy="leave it out, or apply one: mesos-gpu queue apply FILE")
    spec = changed(spec, **given_to(tree, spec))
    if tree.is_flat:
        return spec
    canonical = changed(spec, gpu_model=state.cluster.models_of(spec.gpu_model))
    cost = _cheapest(state, tree, canonical)
    wrong = [(fault.path, fault.reason) for fault in faults(tree, canonical, user, cost)]
    if wrong and not _may_in_other_hours(state, tree, canonical, user, cost):
        remedy = "see the queues and their limits: mesos-gpu queue show"
        raise NotAccepted(wrong, remedy=remedy)
    further = 0 if spec.array is None else parsed(spec.array).count - 1
    full = too_many_submitted(
        scopes_of(tree, spec.queue, user), lambda path, who: _submitted(state, path, who) + further
    )
    if full:
        raise TooMuch(
            full,
            remedy="wait until some have ended, or ask an administrator of the queues for a higher limit",
        )
    return spec


def topology_fault(state: State, settings: Settings, spec: JobSpec) -> str:
    """Return why no node has the level of the fabric that a job asks for; "" if some have, or no node is known."""
    topology = spec.topology
    if topology is None or topology.level == HOST:
        return ""
    level, nodes = topology.level, [node for node in state.cluster.nodes.values() if node.lost_at is None]
    attributes = ", ".join(sorted({name for node in nodes for name in node.attributes})) or "none"
    if level not in settings.placing.levels:
        levels = (
            f"its levels are {', '.join(settings.placing.levels)}"
            if settings.placing.levels
            else "it has no levels"
        )
        return (
            f"the scheduler has no level {level}: {levels} (--topology); attributes of agents: {attributes}"
        )
    if topology.is_required and nodes and not any(level in node.attributes for node in nodes):
        return f"no agent has the attribute {level}; attributes of agents: {attributes}"
    return ""


def _may_in_other_hours(state: State, tree: Tree, spec: JobSpec, user: str, cost: int) -> bool:
    """Return whether a job could start at other times of the year, with the hours of queues."""
    if not tree.has_hours(spec.queue):
        return False
    others = (Tree(document) for _, document in spans_of_year(state.quota.queues, state.quota.hours.at))
    return any(next(faults(other, spec, user, cost), None) is None for other in others)


def of_app(tree: Tree, spec: JobSpec, app_id: str) -> JobSpec:
    """Return the job specification of an instance of an app, with defaults from its queue and class.

    The queue is the one that the app or its label names, else the leaf with the name of the app's top group.

    Args:
        tree: Tree of the queues.
        spec: Job that the app describes.
        app_id: Id of the app, as /shop/web.
    """
    spec = changed(spec, queue=queue_of_app(tree, spec.queue, app_id))
    return changed(spec, **given_to(tree, spec))


def check_app(
    state: State, settings: Settings, app: App, old: App | None, spec: JobSpec
) -> Iterator[tuple[str, str]]:
    """Yield why instances of an app could never start, or not all at once, each with the pointer of its field.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        app: App as requested.
        old: Present app; None if the app is new. What it asks for already is no reason.
        spec: Job of an instance.
    """
    if (old is None or not same_but_scale(old, app)) and (fault := topology_fault(state, settings, spec)):
        yield f"{app.id}/gpu/topology", fault
    tree = tree_of(state, settings)
    if tree.is_flat:
        return
    spec, user = of_app(tree, spec, app.id), app.owner or app.user or ""
    spec = changed(spec, gpu_model=state.cluster.models_of(spec.gpu_model))
    cost, is_new = _cheapest(state, tree, spec), old is None or not same_but_scale(old, app)
    wrong = list(faults(tree, spec, user, cost)) if is_new else []
    if wrong and _may_in_other_hours(state, tree, spec, user, cost):
        return
    if not wrong and (old is None or app.instances > old.instances) and app.instances > 1:
        wrong = list(faults_together(tree, spec, user, cost, app.instances))
    for queue_fault in wrong:
        yield f"{app.id}{_OF_APPS.get(queue_fault.path, queue_fault.path)}", queue_fault.reason


def _cheapest(state: State, tree: Tree, spec: JobSpec) -> int:
    """Return the lowest cost of all tasks of a job, in thousandths."""
    document, milli = tree.document, spec.gpu_milli_in_all
    if not document.gpu_cost or not milli:
        return milli
    models = spec.gpu_model or state.cluster.agents.models
    return milli * min(map(document.cost_of, models), default=1)


def _submitted(state: State, path: str, user: str) -> int:
    """Return the number of pending and running jobs of a user in a queue and below it; of all users for "*"."""
    return sum(
        count
        for (queue, owner), count in state.books.submitted.items()
        if user in (EVERYBODY, owner) and (path == ROOT or path in lineage(queue))
    )
