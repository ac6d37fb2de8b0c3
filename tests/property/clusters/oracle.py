"""Jobs that a small cluster lets start, by all placements and by the rules of the documentation.

Rules of constraints and shares are in docs/gpus.md, of limits, guarantees and lend limits in docs/queues.md, and of
jobs that wait for others in docs/adr/0010, 0012 and 0034.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.shares.units import WHOLE
from tests.chaos.rules.limits import Bound, leave_room
from tests.chaos.rules.tree import kept_from
from tests.property.clusters.drawn import Drawn, Racks, Work

Counts = tuple[int, ...]  # tasks of a job on each node


@dataclass(frozen=True)
class Oracle:
    """A cluster with a job that waits.

    Attributes:
        made: Cluster with the job.
        cards: Node of each GPU.
        holding: Thousandths that each job which runs has of GPUs.
    """

    made: Drawn
    cards: Mapping[str, int]
    holding: Mapping[str, Mapping[str, int]]

    @property
    def victims(self) -> set[str]:
        """Preemptible jobs of lower priority, in a tree of queues those of the job's own queue; and for a job that is
        guaranteed room the jobs of queues that are guaranteed nothing."""
        job, terms = self.made.job, self.made.terms
        return {
            work.name
            for work, _ in self.made.running
            if work.preemptible
            if (work.priority < job.priority and (not terms or work.queue == job.queue))
            or (self.is_guaranteed and not terms[work.queue].owed)
        }

    @property
    def is_guaranteed(self) -> bool:
        """Whether limits let the job start, and its queue is guaranteed enough for all jobs of the queue."""
        terms = self.made.terms.get(self.made.job.queue)
        if terms is None or not terms.owed or not leave_room(self._bounds(), ()):
            return False
        return self._cost(self.made.job.queue, ()) + self.made.job.cost <= terms.owed * WHOLE

    @property
    def may_start(self) -> bool:
        """Whether the job may hold what no queue is guaranteed, or is guaranteed room itself."""
        owed = any(terms.owed for terms in self.made.terms.values())
        return self.made.job.preemptible or not owed or self.is_guaranteed

    def fits(self, ended: Collection[str]) -> bool:
        """Return whether the job has room on nodes and in all limits when some jobs have ended."""
        free = sum(self.made.sizes) * WHOLE - self._cost("", ended)
        if not leave_room(self._bounds(), ended) or free - self.made.job.cost < self._kept(ended):
            return False
        return any(self._placements(ended, racks) for racks in self._racks(ended))

    # --- limits

    def _racks(self, ended: Collection[str]) -> list[set[str]]:
        """Return sets of racks on which the job may be, when some jobs have ended: pools whose limits have room for
        all of it."""
        made, job = self.made, self.made.job
        if not made.pools:
            return [set(made.racks)]
        pools = made.uses.get(job.queue, made.racks)
        able = {rack for rack in pools if leave_room(self._bounds_in(rack), ended)}
        return [{rack} for rack in able] if job.queue in made.uses and job.tasks > 1 else [able]

    def _bounds_in(self, rack: str) -> Iterator[Bound]:
        job, made = self.made.job, self.made
        here = {work.name for work, node in made.running if made.racks[node] == rack}
        for path, most in made.pools.items():
            if rack in most and f"{job.queue}/".startswith(f"{path}/"):
                held = {work.name: work.cost for work in self._of(path) if work.name in here}
                yield Bound(most[rack] * WHOLE, job.cost, held)

    def _of(self, path: str) -> Iterator[Work]:
        return (work for work, _ in self.made.running if not path or f"{work.queue}/".startswith(f"{path}/"))

    def _cost(self, path: str, ended: Collection[str]) -> int:
        return sum(work.cost for work in self._of(path) if work.name not in ended)

    def _bounds(self) -> Iterator[Bound]:
        job, made = self.made.job, self.made
        most = {path: terms.most for path, terms in made.terms.items()} | dict(made.names)
        for path, gpus in most.items():
            if gpus is not None and f"{job.queue}/".startswith(f"{path}/"):
                yield Bound(gpus * WHOLE, job.cost, {work.name: work.cost for work in self._of(path)})
        limits = made.users.get(job.user) or made.users.get("*")
        own = [work for work, _ in made.running if work.user == job.user]
        if limits is not None and limits.max_running is not None:
            yield Bound(limits.max_running, 1, {work.name: 1 for work in own})
        if limits is not None and limits.max_gpus is not None:
            yield Bound(round(limits.max_gpus * WHOLE), job.cost, {work.name: work.cost for work in own})

    def _kept(self, ended: Collection[str]) -> int:
        terms = self.made.terms
        return kept_from(
            self.made.job.queue,
            {path: each.owed * WHOLE for path, each in terms.items()},
            {path: each.lends * WHOLE for path, each in terms.items() if each.lends is not None},
            {path: self._cost(path, ended) for path in terms},
        )

    # --- nodes

    def _rooms(self, ended: Collection[str]) -> list[int]:
        """Tasks of the job that each node has room for: a GPU is for one task, or for shares."""
        used, whole, rooms = Counter[str](), set[str](), [0] * len(self.made.sizes)
        for name, parts in self.holding.items():
            if name not in ended:
                used.update(parts)
                whole |= {card for card, milli in parts.items() if milli == WHOLE}
        job = self.made.job
        for card, node in self.cards.items():
            if job.milli == WHOLE:
                rooms[node] += not used[card]
            elif card not in whole:
                rooms[node] += (WHOLE - used[card]) // job.milli
        if self.made.first is not None:
            rooms[self._awaited] = 0
        return [room // job.gpus for room in rooms]

    @property
    def _awaited(self) -> int:
        """Node that the job before this one waits for."""
        assert self.made.first is not None, "no job waits before"
        return int(self.made.first.constraints[0].value.removesuffix(".example").removeprefix("a"))

    def _placements(self, ended: Collection[str], racks: Collection[str]) -> set[Counts]:
        """Return the placements of all tasks to which the constraints lead, one task after the other."""
        rooms, job = self._rooms(ended), self.made.job
        rooms = [room if rack in racks else 0 for room, rack in zip(rooms, self.made.racks, strict=True)]
        level = {(0,) * len(rooms)}
        for _ in range(job.tasks):
            level = {
                (*counts[:node], counts[node] + 1, *counts[node + 1 :])
                for counts in level
                for node, room in enumerate(rooms)
                if counts[node] < room and all(self._accepts(each, node, counts) for each in job.constraints)
            }
        return level

    def _value(self, field: str, node: int) -> str:
        return self.made.racks[node] if field == "rack" else f"a{node}.example"

    def _accepts(self, constraint: Constraint, node: int, counts: Counts) -> bool:
        """Return whether a node is accepted beside the tasks that have a place."""
        placed = Counter[str]()
        for other, count in enumerate(counts):
            placed[self._value(constraint.field, other)] += count
        value, groups = self._value(constraint.field, node), [each for each, count in placed.items() if count]
        match constraint.operator:
            case Operator.UNIQUE:
                return not placed[value]
            case Operator.CLUSTER:
                return value == constraint.value if constraint.value else not groups or value in groups
            case Operator.MAX_PER:
                return placed[value] < int(constraint.value)
            case _:
                return self._is_below_its_share(placed, value, int(constraint.value))

    def _is_below_its_share(self, placed: Counter[str], value: str, groups: int) -> bool:
        """Return whether a value has less than its share of the tasks over some groups: the shares differ by one task
        at most."""
        if not placed[value]:
            return sum(map(bool, placed.values())) < groups
        share, rest = divmod(self.made.job.tasks, groups)
        larger = sum(count > share for count in placed.values())
        return placed[value] < share or (placed[value] == share and larger < rest)


def oracle_of(made: Drawn, world: Racks) -> Oracle:
    """Return the oracle of a cluster, with the GPUs that its jobs were given."""
    cards = {
        str(card.id): int(node.id[1:]) for node in world.state.cluster.nodes.values() for card in node.gpus
    }
    parts = {work.name: work.milli for work, _ in made.running}
    tasks = [task for task in world.state.work.tasks.values() if task.job_id in parts and not task.ended]
    return Oracle(
        made, cards, {str(task.job_id): dict.fromkeys(task.gpus, parts[str(task.job_id)]) for task in tasks}
    )
