"""All families of metrics that are measured from the state, with their meaning and measurement."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mesos_gpu.adapters.audit.log import LOST
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.login.counts import WRONG
from mesos_gpu.api.metrics.bookings import BOOKINGS
from mesos_gpu.api.metrics.cards import CARDS, Gpus, gpus_of, index_label
from mesos_gpu.api.metrics.cluster import CLUSTER
from mesos_gpu.api.metrics.family import Family, Measured, Values
from mesos_gpu.engine.reading.apps import serving_tasks
from mesos_gpu.engine.reading.jobs import unmade_tasks
from mesos_gpu.engine.reading.nodes import gpu_statuses, has_shares, shared_gpu
from mesos_gpu.engine.reading.queues import budget_standings, queue_shares
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.nodes.node import GpuStatus, Node
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.queue_share import QueueShare
from mesos_gpu.model.shares.share import Share, guarantee
from mesos_gpu.model.shares.units import PER_PERCENT, WHOLE
from mesos_gpu.model.tasks.shared_gpu import Cover, SharedGpu
from mesos_gpu.model.tenancy import EVERYBODY
from mesos_gpu.policy.accounts.budget import Standing
from mesos_gpu.wire.export.prometheus import Column, Metric

# Values of the enumerations once: looking them up for each of many cards is slow.
_OK: Final = Health.OK.value
_HEALTHS: Final = tuple(health.value for health in Health)
_BROKEN: Final = tuple(health.value for health in Health if health.broken)
MAX_QUEUES: Final = 500  # with samples of their own
OTHERS: Final = "*"  # label of the sum of all other leaf queues


def snapshot(view: View) -> Measured:
    """Measure everything on the engine's thread; the page, of 15 lines a GPU, is made on another one."""
    return {measure: measure(view) for measure in dict.fromkeys(family.measure for family in FAMILIES)}


def metrics(measured: Measured) -> Iterator[Metric]:
    """Yield all families one after the other: the rows of all of them at once would take much memory."""
    for family in FAMILIES:
        rows = family.samples(measured[family.measure])
        values = rows if isinstance(rows, Column) else tuple(rows)
        yield Metric(family.name, family.kind, family.help, family.labels, values)


# --- what is measured


class _Shares(NamedTuple):
    """A GPU that is open to shares, its host, the jobs of its shares, and their use as the node reports it."""

    hostname: str
    gpu: SharedGpu
    jobs: tuple[str, ...]
    uses: Mapping[TaskId, ShareUse]

    @property
    def granted(self) -> tuple[Share, ...]:
        """The shares, in the order of `jobs`."""
        return tuple(task.share for task in self.gpu.tenants if task.share)


def _shares(view: View) -> tuple[_Shares, ...]:
    """Return every GPU that is open to shares."""
    if not has_shares(view):
        return ()
    shared = [(status, shared_gpu(view, status.gpu)) for status in gpu_statuses(view)]
    return tuple(
        _Shares(
            status.node.hostname,
            gpu,
            tuple(task.job_id or "" for task in gpu.tenants),
            {use.task_id: use for use in _uses(status) if use.gpu_id == gpu.gpu_id},
        )
        for status, gpu in shared
        if gpu
    )


def _uses(status: GpuStatus) -> tuple[ShareUse, ...]:
    return status.node.inventory.uses if status.node.inventory else ()


def _jobs(view: View) -> Mapping[JobState, int]:
    states = Counter(job.state for job in view.jobs.values())
    if unmade := unmade_tasks(view):
        states[JobState.PENDING] += unmade
    return states


def _nodes(view: View) -> tuple[Node, ...]:
    """Return the nodes that are there and have reported."""
    return tuple(node for node in view.nodes.values() if node.inventory and node.lost_at is None)


def _disbelieved(view: View) -> int:
    return view.disbelieved


def _refused(_view: View) -> Mapping[Reason, int]:
    """Return counts of requests that the HTTP server refused; the engine does not know them."""
    return REFUSED.read()


def _wrong_proofs(_view: View) -> Mapping[str, int]:
    """Return counts of wrong proofs by kind; the engine does not know them."""
    return WRONG.read()


def _unrecorded(_view: View) -> Mapping[str, int]:
    """Return counts of records that are missing in the audit log; the engine does not know them."""
    return dict(LOST)


def _services(view: View) -> tuple[tuple[str, str, int, int], ...]:
    """Return each app of each named service, its weight, and the number of its serving tasks."""
    return tuple(
        (split.name, app, weight, len(serving_tasks(view, app)))
        for split in view.splits.values()
        for app, weight in split.weights.items()
    )


def _queues(view: View) -> Sequence[QueueShare]:
    return queue_shares(view)


# --- samples


def _unlabelled(number: float) -> Values:
    yield (), number


def _health(gpus: Gpus) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the health of each GPU, and whether it is ok: the mean of that over time is the GPU's availability."""
    for status in gpus.ordered:
        gpu, health = status.gpu, status.health
        card = (gpu.id, index_label(gpu), gpu.model, status.node.hostname)
        yield (*card, _OK), int(health is Health.OK)
        if health is not Health.OK:
            yield (*card, health.value), 1


def _transitions(gpus: Gpus) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield how often each GPU came into each health; zeros only for the broken ones.

    With 10,000 GPUs further zeros would be many lines that say little.
    """
    for status in gpus.ordered:
        totals = status.card.totals if status.card else {}
        for health in _HEALTHS if totals else _BROKEN:
            if (total := totals.get(health, 0)) or health in _BROKEN:
                yield (status.gpu.id, health), total


def _by_state(jobs: Mapping[JobState, int]) -> Values:
    return [((state.value,), jobs.get(state, 0)) for state in JobState]


def _card_samples(value: Callable[[_Shares], float]) -> Callable[[Iterable[_Shares]], Values]:
    """Return a function that makes a sample for each GPU that is open to shares."""
    return lambda cards: sorted(((card.gpu.gpu_id, card.hostname), value(card)) for card in cards)


def _use_samples(value: Callable[[ShareUse], float | None]) -> Callable[[Iterable[_Shares]], Values]:
    """Return a function that makes a sample for each share whose use is known."""

    def numbers(cards: Iterable[_Shares]) -> Iterator[tuple[tuple[str, ...], float]]:
        for card in sorted(cards, key=lambda card: card.gpu.gpu_id):
            for task, job in zip(card.gpu.tenants, card.jobs, strict=True):
                use = card.uses.get(task.id)
                if use is not None and (number := value(use)) is not None:
                    yield (card.gpu.gpu_id, task.id, job), number

    return numbers


def _share_samples(value: Callable[[Share], float]) -> Callable[[Iterable[_Shares]], Values]:
    """Return a function that makes a sample for each share."""
    return lambda cards: sorted(
        ((card.gpu.gpu_id, task.id, job), value(share))
        for card in cards
        for task, job, share in zip(card.gpu.tenants, card.jobs, card.granted, strict=True)
    )


def _guarantees(cards: Iterable[_Shares]) -> Values:
    """Yield how each share is enforced."""
    for card in sorted(cards, key=lambda card: card.gpu.gpu_id):
        for task, job, share in zip(card.gpu.tenants, card.jobs, card.granted, strict=True):
            by = guarantee(share)
            yield (card.gpu.gpu_id, task.id, job, share.method.value, by.memory, by.compute, by.faults), 1.0


def _info(nodes: Iterable[Node]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield driver, CUDA and driver volume of each node."""
    for node in sorted(nodes, key=lambda node: (node.hostname, node.id)):
        inventory = node.inventory or Inventory()
        versions = (inventory.driver_version or "", inventory.cuda_version or "", inventory.volume or "")
        yield (node.hostname, str(node.id), *versions), 1.0


_GPU_HOUR: Final = 1000 * 1000 * 3600  # thousandths of cost times milliseconds


def _queue_samples(value: Callable[[QueueShare], int | None]) -> Callable[[Sequence[QueueShare]], Values]:
    """Return a function that makes a sample for each queue in each pool, in GPUs of cost 1.

    Of a tree with very many queues the lowest ones are summed up, so that the page stays bounded.
    """

    def numbers(shares: Sequence[QueueShare]) -> Iterator[tuple[tuple[str, ...], float]]:
        alone, others = bounded(shares)
        for share in alone:
            if (milli := value(share)) is not None:
                yield (share.path, share.pool), milli / WHOLE
        sums: dict[str, int] = {}
        for share in others:
            sums[share.pool] = sums.get(share.pool, 0) + (value(share) or 0)
        for pool, milli in sums.items():
            yield (OTHERS, pool), milli / WHOLE

    return numbers


def _budgets_left(budgets: Sequence[Standing]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the budget left of each top queue that has one; budgets of users are in the REST interface only."""
    queues = [standing for standing in budgets if standing.use.user == EVERYBODY]
    for standing in sorted(queues, key=lambda standing: (standing.use.queue.count("/"), standing.use.queue))[
        :MAX_QUEUES
    ]:
        yield (standing.use.queue,), standing.left / _GPU_HOUR


def bounded(shares: Sequence[QueueShare]) -> tuple[list[QueueShare], list[QueueShare]]:
    """Return the shares of queues that are shown, the top ones first, and of leaves that are not."""
    paths = sorted({share.path for share in shares}, key=lambda path: (path.count("/"), path))
    first = set(paths[:MAX_QUEUES])
    inner = {path.rpartition("/")[0] for path in paths}
    alone = [share for share in shares if share.path in first]
    return alone, [share for share in shares if share.path not in first and share.path not in inner]


#: Families of queues: end of the name, help text, and function that reads the amount.
_QUEUE: Final[tuple[tuple[str, str, Callable[[QueueShare], int | None]], ...]] = (
    ("guarantee", "GPUs that a queue is guaranteed, by cost.", lambda share: share.guarantee),
    ("limit", "The most GPUs that a queue may hold, by cost.", lambda share: share.limit),
    ("share", "Fair share of a queue now in GPUs, by cost.", lambda share: share.due),
    ("used", "GPUs that a queue holds, by cost.", lambda share: share.held),
    ("borrowed", "GPUs that a queue holds over its guarantee, by cost.", lambda share: share.over),
    ("lent", "GPUs of its guarantee that queues beside a queue hold, by cost.", lambda share: share.lent),
    (
        "idle",
        "GPUs of its guarantee that neither a queue nor any beside it holds, by cost.",
        lambda share: max(0, share.idle - share.lent),
    ),
    ("pending", "GPUs that jobs of a queue wait for, by cost.", lambda share: share.pending),
)
_CARD: Final = ("uuid", "agent")
_SHARE: Final = ("uuid", "task", "job")
FAMILIES: Final = (
    Family(
        "mesos_gpu_gpu_health",
        "gauge",
        "1 for the health that a GPU is in; ok is 0 while it is in another.",
        gpus_of,
        _health,
        ("uuid", "gpu", "model", "agent", "state"),
    ),
    Family(
        "mesos_gpu_gpu_health_transitions_total",
        "counter",
        "How often a GPU came into a health.",
        gpus_of,
        _transitions,
        ("uuid", "to"),
    ),
    Family(
        "mesos_gpu_jobs", "gauge", "Jobs that are remembered, by their state.", _jobs, _by_state, ("state",)
    ),
    Family(
        "mesos_gpu_node_info",
        "gauge",
        "1 for each node: its driver, the CUDA that it runs, its driver volume.",
        _nodes,
        _info,
        ("agent", "agent_id", "driver", "cuda", "volume"),
    ),
    Family(
        "mesos_gpu_service_weight",
        "gauge",
        "The weight of an app in a named service.",
        _services,
        lambda services: [((name, app), weight) for name, app, weight, _ in services],
        ("service", "app"),
    ),
    Family(
        "mesos_gpu_service_serving",
        "gauge",
        "Tasks of an app in a named service that serve.",
        _services,
        lambda services: [((name, app), serving) for name, app, _, serving in services],
        ("service", "app"),
    ),
    Family(
        "mesos_gpu_disbelieved_updates_total",
        "counter",
        "Status updates that were ignored because their sender was not the task's executor.",
        _disbelieved,
        _unlabelled,
    ),
    Family(
        "mesos_gpu_requests_refused_total",
        "counter",
        "Requests and connections that were refused before they reached the scheduler.",
        _refused,
        lambda counts: [((reason.value,), count) for reason, count in counts.items()],
        ("reason",),
    ),
    Family(
        "mesos_gpu_wrong_proofs_total",
        "counter",
        "Requests with a wrong proof of a name, by kind of proof.",
        _wrong_proofs,
        lambda counts: [((kind,), count) for kind, count in counts.items()],
        ("proof",),
    ),
    Family(
        "mesos_gpu_audit_lost_total",
        "counter",
        "Records that the audit log could not store.",
        _unrecorded,
        lambda counts: [((kind,), count) for kind, count in counts.items()],
        ("kind",),
    ),
    Family(
        "mesos_gpu_gpus",
        "gauge",
        "GPUs that nodes report.",
        gpus_of,
        lambda gpus: _unlabelled(len(gpus.each)),
    ),
    Family(
        "mesos_gpu_gpus_used",
        "gauge",
        "GPUs that tasks hold, whole or in shares.",
        gpus_of,
        lambda gpus: _unlabelled(len(gpus.used)),
    ),
    Family(
        "mesos_gpu_gpus_shared",
        "gauge",
        "GPUs that are open to shares.",
        _shares,
        lambda cards: _unlabelled(len(cards)),
    ),
    Family(
        "mesos_gpu_gpus_uncovered",
        "gauge",
        "GPUs with shares that no task of this framework holds in Mesos.",
        _shares,
        lambda cards: _unlabelled(sum(card.gpu.state is Cover.UNCOVERED for card in cards)),
    ),
    Family(
        "mesos_gpu_gpu_shares",
        "gauge",
        "Shares of a GPU that is open to them.",
        _shares,
        _card_samples(lambda card: len(card.granted)),
        _CARD,
    ),
    Family(
        "mesos_gpu_gpu_granted_memory_mib",
        "gauge",
        "Memory of a GPU that its shares are granted.",
        _shares,
        _card_samples(lambda card: sum(share.memory_mib for share in card.granted)),
        _CARD,
    ),
    Family(
        "mesos_gpu_gpu_granted_compute_pct",
        "gauge",
        "Compute of a GPU that its shares are granted, in percent of the GPU.",
        _shares,
        _card_samples(lambda card: sum(share.compute_milli for share in card.granted) / PER_PERCENT),
        _CARD,
    ),
    Family(
        "mesos_gpu_share_info",
        "gauge",
        "1 for each share; labels say how it is enforced, and what guarantees its memory and compute.",
        _shares,
        _guarantees,
        (*_SHARE, "method", "memory", "compute", "faults"),
    ),
    Family(
        "mesos_gpu_share_memory_mib",
        "gauge",
        "Memory of its GPU that a share is granted.",
        _shares,
        _share_samples(lambda share: share.memory_mib),
        _SHARE,
    ),
    Family(
        "mesos_gpu_share_compute_pct",
        "gauge",
        "Compute of its GPU that a share is granted, in percent of the GPU.",
        _shares,
        _share_samples(lambda share: share.compute_milli / PER_PERCENT),
        _SHARE,
    ),
    Family(
        "mesos_gpu_share_used_memory_mib",
        "gauge",
        "Memory of its GPU that a share's task uses.",
        _shares,
        _use_samples(lambda use: use.memory_mib),
        _SHARE,
    ),
    Family(
        "mesos_gpu_share_most_memory_mib",
        "gauge",
        "The most memory of its GPU that a share's task was seen to use.",
        _shares,
        _use_samples(lambda use: use.most_mib),
        _SHARE,
    ),
    Family(
        "mesos_gpu_share_used_compute_pct",
        "gauge",
        "Recent part of the GPU's time in which a share's task ran kernels, in percent.",
        _shares,
        _use_samples(lambda use: None if use.compute_milli is None else use.compute_milli / PER_PERCENT),
        _SHARE,
    ),
    Family(
        "mesos_gpu_share_refused_allocations_total",
        "counter",
        "Allocations of a share's task that did not fit its share.",
        _shares,
        _use_samples(lambda use: use.refused),
        _SHARE,
    ),
    Family(
        "mesos_gpu_share_missed_windows_total",
        "counter",
        "Windows of compute that a share's task did not use, to pay for work that ran over.",
        _shares,
        _use_samples(lambda use: use.missed),
        _SHARE,
    ),
    Family(
        "mesos_gpu_share_over",
        "gauge",
        "1 for each share whose task uses more memory than it is granted, else 0.",
        _shares,
        _use_samples(lambda use: float(use.looks > 0)),
        _SHARE,
    ),
    *(
        Family(f"mesos_gpu_queue_{name}", "gauge", about, _queues, _queue_samples(value), ("queue", "pool"))
        for name, about, value in _QUEUE
    ),
    Family(
        "mesos_gpu_queue_budget_left",
        "gauge",
        "GPU hours of cost that a queue's budget has left in its period; negative: used beyond it.",
        lambda view: budget_standings(view),
        _budgets_left,
        ("queue",),
    ),
    *CLUSTER,
    *BOOKINGS,
    *CARDS,
)
