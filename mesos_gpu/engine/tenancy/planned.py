"""Effects of a change of the tree of queues: fair shares before and after, and jobs that would borrow."""

from collections.abc import Mapping

from mesos_gpu.engine.charges import cells_now, charges_by
from mesos_gpu.engine.indexes.charges import Charges
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.seats import Ground
from mesos_gpu.engine.tenancy.shares import Shares
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.queue_plan import PlannedQueue, QueuePlan
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.tenancy.seats import Ask, Held, kept
from mesos_gpu.policy.tenancy.tree import Tree, with_above
from mesos_gpu.policy.times.hours import span_at

Amounts = dict[tuple[str, str], int]  # by path and pool


def planned(state: State, document: QueueDocument, now: float) -> QueuePlan:
    """Return the immediate changes if a document became the next version, by present usage and demand."""
    before, after = state.quota.tree, Tree(span_at(document, now).document)
    old = _Figures(state, charges_by(state, before), now)
    new = _Figures(state, charges_by(state, after), now)
    fresh = {path for path in document.queues if path not in before.queues}
    dues_if_asked = new.dues_if_asked(fresh)
    paths = {*after.queues, *before.queues}
    pools = {*new.shares.pools, *old.shares.pools}
    queues = tuple(
        PlannedQueue(
            path,
            pool,
            _of(old.guarantees, before, path, pool),
            _of(new.guarantees, after, path, pool),
            _of(old.dues, before, path, pool),
            _of(new.dues, after, path, pool),
            dues_if_asked.get((path, pool)) if path in fresh and after.queues[path].is_leaf else None,
            max(new.held.get((path, pool), 0), old.held.get((path, pool), 0)),
            max(new.pending.get((path, pool), 0), old.pending.get((path, pool), 0)),
        )
        for path in sorted(paths, key=lambda path: path.split("/"))
        for pool in sorted(pools)
    )
    return QueuePlan(queues, _unseated(state, after, now))


def _of(figures: Mapping[tuple[str, str], int], tree: Tree, path: str, pool: str) -> int | None:
    """Return a figure of a queue, or None if the tree lacks it."""
    return figures.get((path, pool), 0) if path in tree.queues else None


class _Figures:
    """Fair shares, holdings and demand of all queues of a tree."""

    def __init__(self, state: State, charges: Charges, now: float) -> None:
        self.tree, self.shares = charges.tree, Shares(state, charges, now)
        self._percent = self.tree.document.history_percent
        self._uses = self.shares.uses() if self._percent else {}
        self._demands: dict[str, dict[str, int]] = {}
        self.held, self.pending, self.guarantees = charges.sums.amounts, Amounts(), Amounts()
        for pool in self.shares.pools:
            self._demands[pool] = self.shares.demands(pool)
            pending = with_above(self.shares.pending(pool))
            self.pending |= {(path, pool): milli for path, milli in pending.items()}
            layout = self.shares.layout(pool)
            self.guarantees |= {
                (path, pool): layout.guarantees[place] for path, place in layout.places.items()
            }
        self.dues = self._divided(self._demands)

    def dues_if_asked(self, fresh: set[str]) -> Amounts:
        """Return the fair shares if some queues asked for the whole capacity of each pool."""
        amounts = {pool: capacity.milli for pool, capacity in self.shares.pools.items()}
        return self._divided(
            {
                pool: {
                    **demands,
                    **{path: amounts[pool] for path in fresh if self.tree.queues[path].is_leaf},
                }
                for pool, demands in self._demands.items()
            }
        )

    def _divided(self, demands: Mapping[str, Mapping[str, int]]) -> Amounts:
        """Return the fair shares of all queues in all pools for given demands by pool and leaf."""
        dues = Amounts()
        for pool, capacity in self.shares.pools.items():
            layout = self.shares.layout(pool)
            parts = layout.dues(capacity.milli, demands[pool], self._uses, self._percent)
            dues |= {(path, pool): parts[place] for path, place in layout.places.items()}
        return dues


def _unseated(state: State, tree: Tree, now: float) -> tuple[JobId, ...]:
    """Return the running jobs with guaranteed admission now that would lose it."""
    ground = Ground(state, tree, now)
    cells = cells_now(state, tree)
    held = [
        Held(job.spec.queue, job.seat, Ask(job.id, (ground.granted(job),), job.spec.tasks, (job.sequence,)))
        for job in state.work.jobs.values()
        if job.seat is not None
    ]
    _, changed = kept(cells, held)
    return tuple(sorted(job_id for job_id, seat in changed.items() if seat is None))
