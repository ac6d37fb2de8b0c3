"""What a document of queues says of a job before it is queued: what it gives it, and whether it could ever start."""

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

#: Where an app has what a job has; it has no time limit of its own but its queue's.
_OF_APPS: Final = {
    "/timeout_s": "/gpu",
    **{f"/{each.key}": f"/gpu/{name}" for name, each in PASSED_ON.items()},
}


def admitted(state: State, settings: Settings, spec: JobSpec, user: str) -> JobSpec:
    """The request with what its class and its queue give to those that leave it open.

    Args:
        state: The engine's.
        settings: The operator's.
        spec: What is asked for.
        user: Who is charged.

    Raises:
        NotAccepted: It could never start; all reasons at once.
        TooMuch: As many jobs of its queue or user wait or run as may.
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
    known = changed(spec, gpu_model=state.cluster.models_of(spec.gpu_model))
    cost = _cheapest(state, tree, known)
    wrong = [(each.path, each.reason) for each in faults(tree, known, user, cost)]
    if wrong and not _may_in_other_hours(state, tree, known, user, cost):
        remedy = "see the queues and their limits: mesos-gpu queue show"
        raise NotAccepted(wrong, remedy=remedy)
    others = 0 if spec.array is None else parsed(spec.array).count - 1
    full = too_many_submitted(
        scopes_of(tree, spec.queue, user), lambda path, who: _submitted(state, path, who) + others
    )
    if full:
        raise TooMuch(
            full, remedy="wait until some have ended, or ask who keeps the document of queues for more"
        )
    return spec


def topology_fault(state: State, settings: Settings, spec: JobSpec) -> str:
    """Return why no node has the level of the fabric that a job asks for; "" if some have, or no node is known."""
    topology = spec.topology
    if topology is None or topology.level == HOST:
        return ""
    level, nodes = topology.level, [node for node in state.cluster.nodes.values() if node.lost_at is None]
    known = ", ".join(sorted({name for node in nodes for name in node.attributes})) or "none"
    if level not in settings.placing.levels:
        levels = (
            f"its levels are {', '.join(settings.placing.levels)}"
            if settings.placing.levels
            else "it has no levels"
        )
        return f"the scheduler has no level {level}: {levels} (--topology); attributes of agents: {known}"
    if topology.is_required and nodes and not any(level in node.attributes for node in nodes):
        return f"no agent has the attribute {level}; attributes of agents: {known}"
    return ""


def _may_in_other_hours(state: State, tree: Tree, spec: JobSpec, user: str, cost: int) -> bool:
    """Whether queues are so at other times of the year that nothing is wrong with a job then."""
    if not tree.has_hours(spec.queue):
        return False
    others = (Tree(document) for _, document in spans_of_year(state.quota.queues, state.quota.hours.at))
    return any(next(faults(other, spec, user, cost), None) is None for other in others)


def of_app(tree: Tree, spec: JobSpec, app_id: str) -> JobSpec:
    """What an instance of an app asks for, with what its queue and class give it.

    The queue is the one that the app or its label names, else the leaf named as its top group.

    Args:
        tree: Tree of the queues.
        spec: As the app has it.
        app_id: As /shop/web.
    """
    spec = changed(spec, queue=queue_of_app(tree, spec.queue, app_id))
    return changed(spec, **given_to(tree, spec))


def check_app(
    state: State, settings: Settings, app: App, old: App | None, spec: JobSpec
) -> Iterator[tuple[str, str]]:
    """Why instances of an app could never start, or not all of them; each reason with the pointer of its field.

    Args:
        state: The engine's.
        settings: The operator's.
        app: As it is asked for.
        old: As it is; None: it is new. What it asks for already is no reason.
        spec: What an instance runs.
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
    for each in wrong:
        yield f"{app.id}{_OF_APPS.get(each.path, each.path)}", each.reason


def _cheapest(state: State, tree: Tree, spec: JobSpec) -> int:
    """What all tasks of a job cost at least, thousandths."""
    document, milli = tree.document, spec.gpu_milli_in_all
    if not document.gpu_cost or not milli:
        return milli
    models = spec.gpu_model or state.cluster.agents.models
    return milli * min(map(document.cost_of, models), default=1)


def _submitted(state: State, path: str, user: str) -> int:
    """Jobs that wait or run in a queue, or below it."""
    return sum(
        count
        for (queue, owner), count in state.books.submitted.items()
        if user in (EVERYBODY, owner) and (path == ROOT or path in lineage(queue))
    )
