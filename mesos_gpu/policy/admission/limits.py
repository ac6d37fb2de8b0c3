"""Limits of queues and users, and classes of jobs: which jobs are refused, and which must wait. Pure."""

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
_NEAR: Final = 0.7  # similarity, from 0 to 1, from which on a queue is suggested for an unknown name
Count = Callable[[str, str], int]  # amount held by a queue with all below it, and a user; "*" for all users


@dataclass(frozen=True, slots=True)
class Scope:
    """Queue or user, or both, whose limits apply to a job.

    Attributes:
        path: Path of the queue, which includes all below it; `ROOT` for all queues.
        user: User whose jobs count; the marker "*" for all users.
        limits: Limits of the scope.
    """

    path: str
    user: str
    limits: Limits

    @property
    def words(self) -> str:
        """Owner of the limits as text: a user, a queue or both, else the cluster."""
        user = "" if self.user == EVERYBODY else f"user {self.user or 'unknown'}"
        queue = f"queue {self.path}" if self.path else ""
        return " in ".join(filter(None, (user, queue))) or "the cluster"

    @property
    def stage(self) -> Stage:
        """Stage of the explanation's funnel for jobs that wait for this limit."""
        return Stage.QUEUE_LIMIT if self.user == EVERYBODY else Stage.USER_LIMIT


@dataclass(frozen=True, slots=True)
class Lack:
    """Amount that must be freed under a limit before a job can start.

    Attributes:
        amount: Thousandths of cost, or number of jobs if `counts_jobs`.
        path: Queue whose holdings count, with those of all queues below it.
        pool: Pool of these holdings; "" for all pools together.
        user: User whose holdings count; the marker "*" for all users.
        counts_jobs: Whether each job that holds anything counts as one.
    """

    amount: int
    path: str
    pool: str = ""
    user: str = EVERYBODY
    counts_jobs: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Reason why a job may not start now although there is room for it.

    Attributes:
        stage: Kind of the reason.
        words: Reason as text for users.
        until: Time at which it ends by itself, seconds since the epoch; None if it does not, or if that is unknown.
        lack: Amount that running jobs must free before it ends; None if the end of no job helps.
    """

    stage: Stage
    words: str
    until: float | None = None
    lack: Lack | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """Reason why a job is refused, as it could never start.

    Attributes:
        path: JSON pointer into the request.
        reason: Reason as text for users.
    """

    path: str
    reason: str


def scopes_of(tree: Tree, queue: str, user: str) -> tuple[Scope, ...]:
    """Return the limits that apply to a user's jobs in a queue, the closest first; scopes without limits are
    omitted."""
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
    """Return the class of that name; None if there is no such class."""
    return (
        None
        if name is None
        else next((job_class for job_class in tree.document.classes if job_class.name == name), None)
    )


def charge_percent(document: QueueDocument, name: str | None) -> int:
    """Return the charge of a class in percent of the normal charge; 100 if the class does not exist."""
    if name is None:
        return 100
    return next((job_class.charge_percent for job_class in document.classes if job_class.name == name), 100)


def given_to(tree: Tree, spec: JobSpec) -> dict[str, Any]:
    """Return the values that a job's class and queue supply for fields that its request leaves open."""
    queue, job_class, given = tree.queues.get(spec.queue), class_of(tree, spec.job_class), dict[str, Any]()
    of_queue = queue.resolved if queue is not None else None
    if job_class is not None and job_class.preemptible is not None:
        given["preemptible"] = job_class.preemptible
    if spec.priority is None:
        default = of_queue.default_priority if of_queue is not None else None
        own = job_class.priority if job_class is not None and job_class.priority is not None else default
        given["priority"] = own or 0
    if spec.timeout_s is None and of_queue is not None and of_queue.default_timeout_s is not None:
        given["timeout_s"] = of_queue.default_timeout_s
    return given


def faults(tree: Tree, spec: JobSpec, user: str, cost_milli: int) -> Iterator[Fault]:
    """Yield all reasons why a job could never start.

    Args:
        tree: Tree of queues.
        spec: Request of the job, completed by its class and queue.
        user: Owner of the job.
        cost_milli: Least cost of all its tasks, in thousandths.
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
            why = f"the budget of queue {safe[0]} is safe: only jobs with a time limit start; set timeout_s"
            yield Fault("/timeout_s", why)
    job_class = class_of(tree, spec.job_class)
    pools = pools_for(tree, spec.queue, job_class, spec.gpu_model)
    if not pools:
        yield _without_pool(tree, spec, job_class)
    elif why := never_seated(tree, spec, cost_milli // spec.tasks):
        yield Fault("/preemptible", why)
    bounds = [bound for bound in tree.bounds.get(spec.queue, ()) if cost_milli > bound.milli]
    if pools and {*pools} <= {bound.pool for bound in bounds}:
        yield Fault("/gpus", _too_many(f"queue {bounds[0].path}", "limit_gpus", bounds[0].milli, cost_milli))


def _no_queue(tree: Tree, name: str) -> str:
    """Return the message that a queue does not exist, with similar names and the existing leaves."""
    leaves = sorted(leaf.path for leaf in tree.leaves())
    near = [path for path in leaves if path.endswith(f"/{name}")]
    near = near or difflib.get_close_matches(name, leaves, n=2, cutoff=_NEAR)
    meant = f"did you mean {' or '.join(near[:2])}? " if near else ""
    return f"there is no queue {name}; {meant}there are {', '.join(leaves[:_MAX_LEAVES])}"


def faults_together(tree: Tree, spec: JobSpec, user: str, cost_milli: int, count: int) -> Iterator[Fault]:
    """Yield all reasons why `count` copies of a job could never run at one time.

    Args:
        tree: Tree of queues.
        spec: Request of each job, completed by its class and queue, for which `faults` yields nothing.
        user: Owner of the jobs.
        cost_milli: Least cost of each job, in thousandths.
        count: Number of jobs.
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
        most_of = {bound.pool: bound.milli for bound in tree.bounds.get(path, ()) if bound.path == path}
        most = sum(most_of[pool] for pool in pools & most_of.keys())
        if pools <= most_of.keys() and count * cost_milli > most:
            why = _too_many(f"queue {path}", "limit_gpus", most, count * cost_milli, "together they ask")
            yield Fault("/instances", why)


def queue_of_app(tree: Tree, queue: str, app_id: str) -> str:
    """Return the queue of an app's instances: the one that it names, else the document's leaf named as its top group.

    Args:
        tree: Tree of queues.
        queue: Queue that the app names, itself or by a label; `DEFAULT_QUEUE` if it names none.
        app_id: Id of the app, as /shop/web.
    """
    group, _, rest = app_id.strip("/").partition("/")
    by_group = queue == DEFAULT_QUEUE and rest and not tree.is_flat and tree.leaf_of(group) == group
    return group if by_group else queue


def pools_for(
    tree: Tree, queue: str, known: JobClass | None, models: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the pools that jobs may use, in the order of their queue.

    Args:
        tree: Tree of queues.
        queue: Queue of the jobs.
        known: Class of the jobs; None without a class.
        models: Accepted models, or names that match several; pools that never have one of them are left out. Empty for
            any model.
    """
    never = {pool.name for pool in tree.document.pools if pool.models and not _may_have(pool.models, models)}
    of_class = known.pools if known is not None else ()
    return tuple(
        pool
        for pool in tree.pools_of(queue)
        if (not of_class or pool in of_class) and not (models and pool in never)
    )


def _may_have(of_pool: Collection[str], requested: Collection[str]) -> bool:
    """Return whether names of a pool and requested names may mean one model; each may be a full or a short name."""
    return any(means(name, other) or means(other, name) for name in of_pool for other in requested)


def _without_pool(tree: Tree, spec: JobSpec, known: JobClass | None) -> Fault:
    """Return the fault of a job that may use no pool."""
    if known and known.pools and not pools_for(tree, spec.queue, known):
        return Fault("/class", pools_apart(spec.queue, tree.pools_of(spec.queue), known))
    named = _class_pools(known) or _queue_pools(spec.queue, tree.pools_of(spec.queue))
    return Fault("/gpu_model", f"{named}, and none of them has {' or '.join(spec.gpu_model)}")


def pools_apart(queue: str, pools: Collection[str], known: JobClass | None) -> str:
    """Return the message that a queue and a class have no pool in common, with the pools of each."""
    of_both = filter(None, (_class_pools(known), _queue_pools(queue, pools)))
    return f"{', and '.join(of_both)}: they have no pool in common"


def _class_pools(known: JobClass | None) -> str:
    """Return the pools of a class as text; "" if it has none of its own."""
    return f"class {known.name} is for pools {', '.join(known.pools)}" if known and known.pools else ""


def _queue_pools(queue: str, pools: Collection[str]) -> str:
    """Return the pools of a queue as text."""
    return f"queue {queue} uses pools {', '.join(pools)}"


def _of_class(tree: Tree, spec: JobSpec) -> Iterator[Fault]:
    """Yield the faults of a job whose class does not exist, or does not admit it."""
    job_class = class_of(tree, spec.job_class)
    if job_class is None:
        names = ", ".join(other.name for other in tree.document.classes) or "none"
        yield Fault("/class", f"there is no class {spec.job_class}; there are {names}")
        return
    if not takes_queue(job_class, spec.queue):
        yield Fault(
            "/class",
            f"class {job_class.name} is for queues {', '.join(job_class.queues)}, not for {spec.queue}",
        )
    longest = job_class.max_timeout_s
    if longest is not None and (spec.timeout_s is None or spec.timeout_s > longest):
        yield Fault("/timeout_s", _too_long(f"class {job_class.name}", longest, spec.timeout_s))


def takes_queue(known: JobClass, queue: str) -> bool:
    """Return whether a class may be used by jobs of a queue."""
    return not known.queues or any_fits(known.queues, queue)


def _beyond(scope: Scope, spec: JobSpec, cost_milli: int) -> Iterator[Fault]:
    """Yield the limits of a scope that a single job exceeds."""
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


def _too_many(whose: str, limit: str, most_milli: int, asked_milli: int, subject: str = "it asks") -> str:
    """Return the message that a limit of GPUs is exceeded."""
    most, requested = (counted(number_of(milli), "GPU") for milli in (most_milli, asked_milli))
    return f"{limit} of {whose} is {most}, and {subject} for {requested}"


def _too_long(whose: str, longest_s: float, asked_s: float | None) -> str:
    """Return the message that a time limit is missing, or longer than allowed."""
    request = "has no time limit: set timeout_s" if asked_s is None else f"asks for {asked_s:g} s"
    return f"max_timeout_s of {whose} is {longest_s:g}, and it {request}"


def too_many_submitted(scopes: Sequence[Scope], submitted: Count) -> str:
    """Return the limit of waiting and running jobs that is reached, as text; "" if none is."""
    for scope in scopes:
        most = scope.limits.max_submitted
        if most is not None and submitted(scope.path, scope.user) >= most:
            return f"max_submitted of {scope.words} is {most}, and as many jobs wait or run"
    return ""


# --- seats


def never_seated(tree: Tree, spec: JobSpec, milli: int) -> str:
    """Return why a job that needs a place in its queue's guarantee (a seat) never gets one, as text.

    Args:
        tree: Queues of the document.
        spec: Request of the job.
        milli: Cost of each of its tasks where it costs least, in thousandths.

    Returns:
        "" if it may start, or if it needs no such place.
    """
    queue = tree.queues.get(spec.queue)
    if queue is None or not needs_seat(tree, spec):
        return ""
    pools = {*pools_for(tree, spec.queue, class_of(tree, spec.job_class), spec.gpu_model)}
    wants = [(pool, milli) for pool in sorted(pools)]
    if not (owed := _owed_to(tree, queue)) & pools:
        restriction = f" of pool {' or '.join(sorted(pools))}, which it may use" if owed and pools else ""
        why = f"queue {queue.path} has no guarantee{restriction}"
    elif not could_be_seated(tree, spec, wants):
        why = f"the guarantee of queue {queue.path} has no room for it even when all of it is free"
    else:
        return ""
    return f"{why}, and only preemptible jobs start without one: {_how_else(tree, queue, spec, wants)}"


def could_be_seated(
    tree: Tree, spec: JobSpec, wants: Sequence[tuple[str, int]], cells: Cells | None = None
) -> bool:
    """Return whether the guarantees of queues would let a job start if nothing else ran.

    Args:
        tree: Tree of the queues.
        spec: Request of the job, completed by its class and queue.
        wants: Pools in which the job has room, each with the thousandths of cost of a task there.
        cells: Cells of the queues; None for those of guarantees that are not scaled.
    """
    all_cells = whole_cells(tree) if cells is None else cells
    return not needs_seat(tree, spec) or could_hold(all_cells, spec.queue, wants, spec.tasks)


def needs_seat(tree: Tree, spec: JobSpec) -> bool:
    """Return whether a job may run only within a guarantee, as it cannot be preempted and may run for too long.

    Jobs of a queue that the document does not have start as they do without a document.
    """
    if spec.preemptible or not spec.gpus or not tree.is_guaranteed or spec.booking is not None:
        return False
    queue = tree.queues.get(spec.queue)
    if queue is None or not tree.is_written(queue.path):
        return False
    return spec.timeout_s is None or spec.timeout_s + spec.kill_grace_s > queue.resolved.borrow_for_s


def _owed_to(tree: Tree, queue: Queue) -> set[str]:
    """Return the pools in which a queue or an ancestor has a guarantee."""
    above = (tree.specs[path].guarantee_gpus for path in lineage(queue.path))
    return {pool for guarantee in above for pool, guaranteed in guarantee.items() if guaranteed.milli}


def _how_else(tree: Tree, queue: Queue, spec: JobSpec, wants: Sequence[tuple[str, int]]) -> str:
    """Return how a job that never gets a place in its queue's guarantee could start otherwise, as text."""
    ways, most_s = ["make it preemptible"], queue.resolved.borrow_for_s - spec.kill_grace_s
    if most_s > 0:
        ways.append(f"give it a time limit of at most {most_s:g} s (borrow_for_s)")
    cells = whole_cells(tree)
    others = (leaf.path for leaf in tree.leaves() if could_hold(cells, leaf.path, wants, spec.tasks))
    if suggestions := ", ".join(islice(others, _MAX_NAMED_QUEUES)):
        ways.append(f"use a queue whose guarantee has room for it, as {suggestions}")
    return ", or ".join(ways)


def max_gpus_milli(limits: Limits) -> int | None:
    """Return the limit of GPUs in thousandths of cost; None if there is no such limit."""
    return _milli(limits.max_gpus)


def _milli(gpus: float | None) -> int | None:
    """Convert GPUs to thousandths; None stays None."""
    return None if gpus is None else round(gpus * WHOLE)
