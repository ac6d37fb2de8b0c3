"""Limits of queues and users, and classes of jobs: what is refused, and what must wait. Pure."""

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from mesos_gpu.access.patterns import any_fits
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, JobSpec
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.gpu_names import means
from mesos_gpu.model.shares.units import WHOLE, number_of
from mesos_gpu.model.tenancy import (
    EVERYBODY,
    NO_LIMITS,
    ROOT,
    JobClass,
    Limits,
    QueueDocument,
)
from mesos_gpu.model.words import counted
from mesos_gpu.policy.accounts.budget import paid_by
from mesos_gpu.policy.tenancy.cells import Cells, could_hold, whole_cells
from mesos_gpu.policy.tenancy.tree import Queue, Tree, lineage

_MAX_NAMED_QUEUES: Final = 3
_MAX_LEAVES: Final = 20
_NEAR: Final = 0.7  # how similar a queue's path is to a name that may have meant it, from 0 to 1
Count = Callable[[str, str], int]  # of a queue with all below it, and of a user, `EVERYBODY` being one


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose limits hold for a job.

    Attributes:
        path: The queue, with all below it; `ROOT`: all of them.
        user: Whose jobs count; `EVERYBODY`: all.
        limits: What they may have.
    """

    path: str
    user: str
    limits: Limits

    @property
    def words(self) -> str:
        """Owner of the limits: a user, a queue or both, else the cluster."""
        user = "" if self.user == EVERYBODY else f"user {self.user or 'unknown'}"
        queue = f"queue {self.path}" if self.path else ""
        return " in ".join(filter(None, (user, queue))) or "the cluster"

    @property
    def stage(self) -> Stage:
        """Where who waits for it is in the funnel."""
        return Stage.QUEUE_LIMIT if self.user == EVERYBODY else Stage.USER_LIMIT


@dataclass(frozen=True, slots=True)
class Lack:
    """Amount that a limit lacks for a job to start.

    Attributes:
        amount: Thousandths of cost, or number of jobs if `counts_jobs`.
        path: Queue whose holdings count, with those of all queues below it.
        pool: Pool of these holdings; "": all pools together.
        user: User whose holdings count; `EVERYBODY`: all users.
        counts_jobs: Whether each job that holds anything counts as one.
    """

    amount: int
    path: str
    pool: str = ""
    user: str = EVERYBODY
    counts_jobs: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Blocker of a job: why it may not start now, though there were room for it.

    Attributes:
        stage: Kind of the reason.
        words: Reason, for people.
        until: Time at which it ends by itself, seconds since the epoch; None if it does not, or if that is unknown.
        lack: Amount that running jobs give back by their ends for it to end; None if the end of no job helps.
    """

    stage: Stage
    words: str
    until: float | None = None
    lack: Lack | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a job is refused: it could never start. `path`: a JSON pointer into the request."""

    path: str
    reason: str


def scopes_of(tree: Tree, queue: str, user: str) -> tuple[Scope, ...]:
    """The limits that hold for a user's jobs in a queue, the closest first; what limits nothing is left out."""
    scopes = []
    for path in lineage(queue):
        spec = tree.specs.get(path)
        if spec is not None and spec.limits is not NO_LIMITS:
            scopes.append(Scope(path, EVERYBODY, spec.limits))
        if spec is not None and spec.users:
            scopes.append(Scope(path, user, spec.users.get(user) or spec.users.get(EVERYBODY) or NO_LIMITS))
    if users := tree.document.users:
        scopes.append(Scope(ROOT, user, users.get(user) or users.get(EVERYBODY) or NO_LIMITS))
    return tuple(scope for scope in scopes if scope.limits != NO_LIMITS)


# --- when a job is submitted


def class_of(tree: Tree, name: str | None) -> JobClass | None:
    """The class of that name."""
    return None if name is None else next((each for each in tree.document.classes if each.name == name), None)


def charge_percent(document: QueueDocument, name: str | None) -> int:
    """What jobs of a class count, of what others do; 100 where there is no such class."""
    if name is None:
        return 100
    return next((each.charge_percent for each in document.classes if each.name == name), 100)


def given_to(tree: Tree, spec: JobSpec) -> dict[str, Any]:
    """Return what its class and its queue give to a request that leaves it open, by field."""
    queue, known, given = tree.queues.get(spec.queue), class_of(tree, spec.job_class), dict[str, Any]()
    of_queue = queue.resolved if queue is not None else None
    if known is not None and known.preemptible is not None:
        given["preemptible"] = known.preemptible
    if spec.priority is None:
        default = of_queue.default_priority if of_queue is not None else None
        own = known.priority if known is not None and known.priority is not None else default
        given["priority"] = own or 0
    if spec.timeout_s is None and of_queue is not None and of_queue.default_timeout_s is not None:
        given["timeout_s"] = of_queue.default_timeout_s
    return given


def faults(tree: Tree, spec: JobSpec, user: str, cost_milli: int) -> Iterator[Fault]:
    """Why such a job could never start, all reasons at once.

    Args:
        tree: The queues.
        spec: With what its class and queue give.
        user: Whose it is.
        cost_milli: What all its tasks cost at least.
    """
    queue = tree.queues.get(spec.queue)
    if queue is None:
        yield Fault("/queue", _no_queue(tree, spec.queue))
        return
    if not queue.is_leaf:
        yield Fault(
            "/queue", f"queue {spec.queue} takes no jobs; name one below it: {', '.join(queue.children)}"
        )
        return
    if spec.job_class is not None:
        yield from _of_class(tree, spec)
    for scope in scopes_of(tree, spec.queue, user):
        yield from _beyond(scope, spec, cost_milli)
    if cost_milli and spec.timeout_s is None:
        safe = [key[0] for key, budget in paid_by(tree, spec.queue, user) if budget.safe]
        if safe:
            why = (
                f"the budget of queue {safe[0]} is safe: it starts only jobs with a time limit: set timeout_s"
            )
            yield Fault("/timeout_s", why)
    known = class_of(tree, spec.job_class)
    pools = pools_for(tree, spec.queue, known, spec.gpu_model)
    if not pools:
        yield _without_pool(tree, spec, known)
    elif why := never_seated(tree, spec, cost_milli // spec.tasks):
        yield Fault("/preemptible", why)
    bounds = [bound for bound in tree.bounds.get(spec.queue, ()) if cost_milli > bound.milli]
    if pools and {*pools} <= {bound.pool for bound in bounds}:
        yield Fault("/gpus", _too_many(f"queue {bounds[0].path}", "limit_gpus", bounds[0].milli, cost_milli))


def _no_queue(tree: Tree, name: str) -> str:
    """Say that the document has no queue of a name, and which queues may have been meant."""
    leaves = sorted(leaf.path for leaf in tree.leaves())
    near = [path for path in leaves if path.endswith(f"/{name}")]
    near = near or difflib.get_close_matches(name, leaves, n=2, cutoff=_NEAR)
    meant = f"did you mean {' or '.join(near[:2])}? " if near else ""
    return f"there is no queue {name}; {meant}there are {', '.join(leaves[:_MAX_LEAVES])}"


def faults_together(tree: Tree, spec: JobSpec, user: str, cost_milli: int, count: int) -> Iterator[Fault]:
    """Why so many of such a job could never run at one time, all reasons at once.

    Args:
        tree: The queues.
        spec: Of each, with what its class and queue give; `faults` found nothing.
        user: Whose they are.
        cost_milli: What each costs at least.
        count: How many.
    """
    for scope in scopes_of(tree, spec.queue, user):
        limits = scope.limits
        for name, most in (("max_running", limits.max_running), ("max_submitted", limits.max_submitted)):
            if most is not None and count > most:
                yield Fault("/instances", f"{name} of {scope.words} is {most}, and {count} are asked for")
        all_gpus = _milli(limits.max_gpus)
        if all_gpus is not None and count * cost_milli > all_gpus:
            why = _too_many(scope.words, "max_gpus", all_gpus, count * cost_milli, "together they ask")
            yield Fault("/instances", why)
    pools = {*pools_for(tree, spec.queue, class_of(tree, spec.job_class), spec.gpu_model)}
    for path in lineage(spec.queue):
        most_of = {each.pool: each.milli for each in tree.bounds.get(path, ()) if each.path == path}
        most = sum(most_of[pool] for pool in pools & most_of.keys())
        if pools <= most_of.keys() and count * cost_milli > most:
            why = _too_many(f"queue {path}", "limit_gpus", most, count * cost_milli, "together they ask")
            yield Fault("/instances", why)


def queue_of_app(tree: Tree, queue: str, app_id: str) -> str:
    """Return the queue of an app's instances: the one that it names, else the document's leaf named as its top group.

    Args:
        tree: The queues.
        queue: That it names, itself or by a label; `DEFAULT_QUEUE`: it names none.
        app_id: As /shop/web.
    """
    group, _, rest = app_id.strip("/").partition("/")
    by_group = queue == DEFAULT_QUEUE and rest and not tree.is_flat and tree.leaf_of(group) == group
    return group if by_group else queue


def pools_for(
    tree: Tree, queue: str, known: JobClass | None, models: Collection[str] = ()
) -> tuple[str, ...]:
    """The pools that jobs may use, in the order of their queue.

    Args:
        tree: The queues.
        queue: Theirs.
        known: Their class; None: they have none.
        models: Names of models, or models; pools that never have one of them are left out; none: any will do.
    """
    never = {each.name for each in tree.document.pools if each.models and not _may_have(each.models, models)}
    of_class = known.pools if known is not None else ()
    return tuple(
        pool
        for pool in tree.pools_of(queue)
        if (not of_class or pool in of_class) and not (models and pool in never)
    )


def _may_have(of_pool: Collection[str], asked: Collection[str]) -> bool:
    """Return whether names of a pool may mean a card that others mean; each name may be a card's in full."""
    return any(means(name, other) or means(other, name) for name in of_pool for other in asked)


def _without_pool(tree: Tree, spec: JobSpec, known: JobClass | None) -> Fault:
    """Return the fault of a job that may use no pool."""
    if known and known.pools and not pools_for(tree, spec.queue, known):
        return Fault("/class", pools_apart(spec.queue, tree.pools_of(spec.queue), known))
    named = _class_pools(known) or _queue_pools(spec.queue, tree.pools_of(spec.queue))
    return Fault("/gpu_model", f"{named}, and none of them has {' or '.join(spec.gpu_model)}")


def pools_apart(queue: str, pools: Collection[str], known: JobClass | None) -> str:
    """Return which pools a queue and a class have, in words, where they have none in common."""
    of_both = filter(None, (_class_pools(known), _queue_pools(queue, pools)))
    return f"{', and '.join(of_both)}: there is none of both"


def _class_pools(known: JobClass | None) -> str:
    return f"class {known.name} is for pools {', '.join(known.pools)}" if known and known.pools else ""


def _queue_pools(queue: str, pools: Collection[str]) -> str:
    return f"queue {queue} uses pools {', '.join(pools)}"


def _of_class(tree: Tree, spec: JobSpec) -> Iterator[Fault]:
    known = class_of(tree, spec.job_class)
    if known is None:
        names = ", ".join(each.name for each in tree.document.classes) or "none"
        yield Fault("/class", f"there is no class {spec.job_class}; there are {names}")
        return
    if not takes_queue(known, spec.queue):
        yield Fault(
            "/class", f"class {known.name} is for queues {', '.join(known.queues)}, not for {spec.queue}"
        )
    longest = known.max_timeout_s
    if longest is not None and (spec.timeout_s is None or spec.timeout_s > longest):
        yield Fault("/timeout_s", _too_long(f"class {known.name}", longest, spec.timeout_s))


def takes_queue(known: JobClass, queue: str) -> bool:
    """Return whether a class is for jobs of a queue."""
    return not known.queues or any_fits(known.queues, queue)


def _beyond(scope: Scope, spec: JobSpec, cost_milli: int) -> Iterator[Fault]:
    limits = scope.limits
    per_job, all_gpus = _milli(limits.max_gpus_per_job), _milli(limits.max_gpus)
    if per_job is not None and spec.gpu_milli_in_all > per_job:
        yield Fault("/gpus", _too_many(scope.words, "max_gpus_per_job", per_job, spec.gpu_milli_in_all))
    if all_gpus is not None and cost_milli > all_gpus:
        yield Fault("/gpus", _too_many(scope.words, "max_gpus", all_gpus, cost_milli))
    longest = limits.max_timeout_s
    if longest is not None and (spec.timeout_s is None or spec.timeout_s > longest):
        yield Fault("/timeout_s", _too_long(scope.words, longest, spec.timeout_s))
    priority = spec.priority or 0
    if limits.max_priority is not None and priority > limits.max_priority:
        why = f"max_priority of {scope.words} is {limits.max_priority}, and it asks for {priority}"
        yield Fault("/priority", why)
    if limits.max_running == 0:
        yield Fault("/queue", f"max_running of {scope.words} is 0: no job of it starts")


def _too_many(whose: str, limit: str, most_milli: int, asked_milli: int, who: str = "it asks") -> str:
    most, asked = (counted(number_of(milli), "GPU") for milli in (most_milli, asked_milli))
    return f"{limit} of {whose} is {most}, and {who} for {asked}"


def _too_long(whose: str, longest_s: float, asked_s: float | None) -> str:
    asked = "has no time limit: set timeout_s" if asked_s is None else f"asks for {asked_s:g} s"
    return f"max_timeout_s of {whose} is {longest_s:g}, and it {asked}"


def too_many_submitted(scopes: Sequence[Scope], submitted: Count) -> str:
    """Which limit of jobs that wait or run is reached, in words; "": none."""
    for scope in scopes:
        most = scope.limits.max_submitted
        if most is not None and submitted(scope.path, scope.user) >= most:
            return f"max_submitted of {scope.words} is {most}, and so many wait or run"
    return ""


# --- seats


def never_seated(tree: Tree, spec: JobSpec, milli: int) -> str:
    """Return why a job that starts only within what its queue is guaranteed never starts, in words.

    Args:
        tree: Queues of the document.
        spec: Request of the job.
        milli: Cost of each of its tasks where it costs least, thousandths.

    Returns:
        "" if it may start, or if it needs no seat.
    """
    queue = tree.queues.get(spec.queue)
    if queue is None or not needs_seat(tree, spec):
        return ""
    pools = {*pools_for(tree, spec.queue, class_of(tree, spec.job_class), spec.gpu_model)}
    wants = [(pool, milli) for pool in sorted(pools)]
    if not (owed := _owed_to(tree, queue)) & pools:
        those = f" of pool {' or '.join(sorted(pools))}, which it may use" if owed and pools else ""
        why = f"queue {queue.path} has no guarantee{those}"
    elif not could_be_seated(tree, spec, wants):
        why = f"the guarantee of queue {queue.path} has no room for it even when all of that is free"
    else:
        return ""
    return f"{why}, and only preemptible jobs start without one: {_how_else(tree, queue, spec, wants)}"


def could_be_seated(
    tree: Tree, spec: JobSpec, wants: Sequence[tuple[str, int]], cells: Cells | None = None
) -> bool:
    """Return whether what queues are guaranteed would let a job start if nothing else ran.

    Args:
        tree: Tree of the queues.
        spec: Job as its class and queue complete it.
        wants: Pools in which the job has room, each with the thousandths of cost of a task there.
        cells: Cells of the queues; None for those of guarantees that are not scaled.
    """
    known = whole_cells(tree) if cells is None else cells
    return not needs_seat(tree, spec) or could_hold(known, spec.queue, wants, spec.tasks)


def needs_seat(tree: Tree, spec: JobSpec) -> bool:
    """Return whether a job may hold nothing but what a queue is guaranteed.

    Jobs of a queue that the document does not have start as they do without a document.
    """
    if spec.preemptible or not spec.gpus or not tree.is_guaranteed or spec.booking is not None:
        return False
    queue = tree.queues.get(spec.queue)
    if queue is None or not tree.is_written(queue.path):
        return False
    return spec.timeout_s is None or spec.timeout_s + spec.kill_grace_s > queue.resolved.borrow_for_s


def _owed_to(tree: Tree, queue: Queue) -> set[str]:
    """The pools of which a queue, or one above it, is guaranteed anything."""
    above = (tree.specs[path].guarantee_gpus for path in lineage(queue.path))
    return {pool for guarantee in above for pool, owed in guarantee.items() if owed.milli}


def _how_else(tree: Tree, queue: Queue, spec: JobSpec, wants: Sequence[tuple[str, int]]) -> str:
    """Return how a job could start that never gets a part of a guarantee of its queue, in words."""
    ways, most_s = ["make it preemptible"], queue.resolved.borrow_for_s - spec.kill_grace_s
    if most_s > 0:
        ways.append(f"give it a time limit of at most {most_s:g} s (borrow_for_s)")
    cells = whole_cells(tree)
    others = (leaf.path for leaf in tree.leaves() if could_hold(cells, leaf.path, wants, spec.tasks))
    if known := ", ".join(islice(others, _MAX_NAMED_QUEUES)):
        ways.append(f"use a queue whose guarantee has room for it, as {known}")
    return ", or ".join(ways)


def max_gpus_milli(limits: Limits) -> int | None:
    """Return the limit of GPUs in thousandths of cost; None if there is no such limit."""
    return _milli(limits.max_gpus)


def _milli(gpus: float | None) -> int | None:
    return None if gpus is None else round(gpus * WHOLE)
