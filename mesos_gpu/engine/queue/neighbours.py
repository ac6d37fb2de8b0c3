"""Affinity: where jobs of apps run that constraints, `near` and `away` name, during a match or for a reader."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType

from mesos_gpu.engine.queue.secrets import sources_of
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.room.volumes import has_volumes, homes_of, not_at_home, without_volumes
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.constraint import HOSTNAME
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.cluster.constraints import Placed, violated
from mesos_gpu.policy.cluster.verdicts import MatchCache
from mesos_gpu.policy.gangs.ground import Site
from mesos_gpu.policy.gangs.rules import level_field, level_rules, rules_of
from mesos_gpu.policy.gangs.search import Most, Outcome, Rule, Together, search
from mesos_gpu.policy.nodes.fields import UNDECIDED, excluded, value_of
from mesos_gpu.policy.nodes.levels import Fabric


class Neighbours:
    """Constraints between jobs and nodes, and among the tasks of a gang.

    Launches are read when the first job with a constraint asks; the result is valid as long as the state changes only
    by assignments reported to `take`. A launch that was given up as unreachable holds no place.

    Args:
        state: State of the engine.
        levels: Names of the levels of the network fabric, from the settings.
        reading: Whether the state must not remember any results.
    """

    def __init__(self, state: State, levels: Sequence[str] = (), *, reading: bool = True) -> None:
        self._state, self._levels = state, levels
        self.verdicts = MatchCache(state.match.verdicts, reading=reading)
        self._apps: dict[str | None, list[Placed]] | None = None
        self._shunned: dict[str | None, list[Placed]] = {}  # jobs that want to be away from an app, by app
        self._instances: dict[str | None, int] = {}
        self._counted: set[str] = set()  # jobs counted in `_instances`
        self._launches = 0
        self._revision = 0  # grows with each launch that is counted or undone
        self._known: tuple[Job, int, list[Rule]] | None = None  # latest result of `_rules`
        self._counts: list[bool] = []  # whether each assignment that was not undone was counted

    def key(self, job: Job) -> Hashable:
        """Return a key that is equal for jobs which may go to the same nodes now; None for jobs that may go to all."""
        spec = job.spec
        if not self._is_bound(spec):
            return None
        where = spec.constraints, spec.near, spec.away, spec.topology, spec.segment
        needs_key = bool(sources_of(self._state, spec))
        return needs_key, _group(job), *where, homes_of(self._state, spec), self._launches

    def _is_bound(self, spec: JobSpec) -> bool:
        """Return whether any constraint, secret or volume restricts the nodes of a job."""
        return bool(sources_of(self._state, spec)) or has_volumes(spec) or self._compares(spec)

    def _compares(self, spec: JobSpec) -> bool:
        """Return whether the nodes of a job depend on attributes or on where other jobs run."""
        if spec.constraints or spec.near or spec.away or spec.topology:
            return True
        if spec.app and self._apps is None:
            self._read()
        return spec.app in self._shunned

    def open_to(self, job: Job, candidates: Mapping[AgentId, NodeCapacity]) -> Mapping[AgentId, NodeCapacity]:
        """Return the candidates on which a job may run."""
        if not self._is_bound(job.spec):
            return candidates
        nodes = self._state.cluster.nodes
        self.verdicts.next_job()
        return {
            agent_id: candidate
            for agent_id, candidate in candidates.items()
            if not self.barred(job, nodes[agent_id])
        }

    def barred(self, job: Job, node: Node) -> str:
        """Return why a job may not run on a node now; "" if it may."""
        spec = job.spec
        if sources_of(self._state, spec) and (why := _keyless(node)):
            return why
        if has_volumes(spec) and (why := without_volumes(self._state, job, node)):
            return why
        if not self._compares(spec):
            return ""
        placed = self._of(_group(job))
        instances = self._instances.get(_group(job), 1)
        for constraint in spec.constraints:
            why = violated(constraint, node, placed, instances, self.verdicts)
            if why:
                return f"violates constraint {constraint}: {why}"
        return self._off_level(spec, node, placed) or self._apart(spec, node)

    def ruled_out(self, spec: JobSpec, node: Node) -> str:
        """Return why a job could never run on a node, whatever runs where; "" if it could, or if that is unknown."""
        for constraint in spec.constraints:
            why = excluded(constraint, node, self.verdicts)
            if why and why != UNDECIDED:
                return f"violates constraint {constraint}: {why}"
        return not_at_home(self._state, spec, node) or self._off_level(spec, node)

    def _off_level(self, spec: JobSpec, node: Node, placed: Sequence[Placed] = ()) -> str:
        """Return why a node violates the topology of a job: no group at the required level, or another than its app."""
        topology = spec.topology
        if topology is None or not topology.is_required:
            return ""
        if why := self.fabric.absence(node.id, topology):
            return f"violates topology {topology}: {why}"
        if not placed or spec.segment is not None or placed[0].node.id not in self.fabric.groups:
            return ""
        first, group = (
            self.fabric.group(agent_id, topology.level) for agent_id in (placed[0].node.id, node.id)
        )
        if first == group:
            return ""
        return f"violates topology {topology}: {placed[0].name} runs in another {topology.level}"

    @property
    def fabric(self) -> Fabric:
        """The groups of nodes at the levels of the fabric."""
        return self._state.cluster.agents.fabric(self._levels, self._state.cluster.nodes)

    def in_order(self, agents: Sequence[AgentId]) -> Sequence[AgentId]:
        """Return agents in the order in which tasks of a gang get their ranks: group by group of the fabric."""
        if not self._levels:
            return agents
        groups = self.fabric.groups
        return sorted(agents, key=lambda agent_id: groups[agent_id][:-1])

    def _apart(self, spec: JobSpec, node: Node) -> str:
        """Return why `near` or `away` of a job, or `away` of other jobs, forbids a node; "" if none does."""
        if spec.near:
            others = self._of(spec.near)
            # The first job of an app that is to be near itself may go anywhere.
            if not any(p.node.hostname == node.hostname for p in others) and (
                others or spec.near != spec.app
            ):
                return f"runs no job of {spec.near}, which this one is to be near"
        for other in self._of(spec.away):
            if other.node.hostname == node.hostname:
                return f"runs {other.name}, and this job is to be away from {spec.away}"
        for other in self._shunned.get(spec.app, ()):
            if other.node.hostname == node.hostname:
                return f"runs {other.name}, which is to be away from {spec.app}"
        return ""

    def _of(self, app: str | None) -> list[Placed]:
        """Return where the jobs of an app or group run."""
        if self._apps is None:
            self._read()
        assert self._apps is not None, "launches have been read"
        return self._apps.get(app, [])

    # --- a book of the ledger

    def take(self, take: Take) -> None:
        """Count an assignment, unless launches have not been read yet: then the state will have it."""
        job = take.job
        counts = self._apps is not None and job is not None and bool(_group(job) or job.spec.away)
        self._counts.append(counts)
        if counts and job is not None:
            self._launches += 1
            self._revision += 1
            self._place(job, take.agent_id)

    def undo(self, take: Take) -> None:
        """Undo the count of the latest assignment."""
        job = take.job
        if not self._counts.pop() or job is None:
            return
        self._launches -= 1
        self._revision += 1
        group, away = _group(job), job.spec.away
        if group and self._apps is not None:
            self._apps[group].pop()
        if away:
            self._shunned[away].pop()
            if not self._shunned[away]:
                del self._shunned[away]

    def placing_of(
        self, job: Job, *, empty: bool = False
    ) -> Callable[[Mapping[AgentId, int]], Sequence[int] | None] | None:
        """Return the search for nodes of a gang; None if no rule compares its tasks.

        Args:
            job: Gang that waits.
            empty: Whether the search is for nodes on which nothing runs.

        Returns:
            Function from the number of tasks that fit, by node, to the number of tasks for each.
        """
        if job.spec.tasks == 1 or not self._rules(job):
            return None
        if not empty:
            return lambda rooms: self.place(job, rooms).counts
        rules = self._made_rules(job, (), job.spec.tasks)
        return lambda rooms: search(job.spec.tasks, self._sites(job, rooms, rules), rules).counts

    def most(self, job: Job, rooms: Mapping[AgentId, int]) -> list[int]:
        """Return the number of tasks for each node if as many tasks, or segments, as possible are placed together."""
        topology = job.spec.topology
        segment = (job.spec.segment or 1) if topology is not None and topology.is_required else 1
        low, high, best = 0, job.spec.tasks // segment, [0] * len(rooms)
        while low < high:
            middle = (low + high + 1) // 2
            counts = self.place(job, rooms, tasks=middle * segment, apart=True).counts
            if counts is None:
                high = middle - 1
            else:
                low, best = middle, [*counts]
        return best

    def place(
        self,
        job: Job,
        rooms: Mapping[AgentId, int],
        keys: Mapping[AgentId, int] = MappingProxyType({}),
        *,
        tasks: int | None = None,
        apart: bool = False,
    ) -> Outcome:
        """Find the nodes of a gang.

        Args:
            job: Gang that waits.
            rooms: Number of its tasks that fit, by node. Its constraints bar none of these nodes now.
            keys: Ranks of the nodes by the placement policy, as of `Site.key`.
            tasks: Number of tasks to place; None for all tasks of the gang.
            apart: Whether nodes are dealt one task each in turn.

        Returns:
            Tasks by node, in the order of `rooms`.
        """
        rules = self._rules(job)
        sites = self._sites(job, rooms, rules, keys)
        return search(job.spec.tasks if tasks is None else tasks, sites, rules, apart=apart)

    def _sites(
        self,
        job: Job,
        rooms: Mapping[AgentId, int],
        rules: Sequence[Rule],
        keys: Mapping[AgentId, int] = MappingProxyType({}),
    ) -> list[Site]:
        """Return nodes as sites of the placement search, with the values that the rules of a gang compare."""
        nodes, fields = self._state.cluster.nodes, {rule.field for rule in rules}
        levels = [level_field(level) for level in self.fabric.levels] if job.spec.topology else []
        fields.difference_update(levels)
        sites = []
        for agent_id, room in rooms.items():
            node = nodes[agent_id]
            values = {name: value for name in fields if (value := value_of(name, node)) is not None}
            if levels:
                values.update(zip(levels, self.fabric.groups[agent_id], strict=True))
            sites.append(Site(min(room, job.spec.tasks), values, keys.get(agent_id, 0)))
        return sites

    def _rules(self, job: Job) -> list[Rule]:
        """Return the rules for the tasks of a gang among each other, cached until the next launch."""
        cached = self._known
        if cached is None or cached[0] is not job or cached[1] != self._revision:
            rules: list[Rule] = []
            if self._compares(job.spec):
                placed = self._of(_group(job))
                rules = self._made_rules(job, placed, self._instances.get(_group(job), job.spec.tasks))
            cached = self._known = job, self._revision, rules
        return cached[2]

    def _made_rules(self, job: Job, placed: Sequence[Placed], instances: int) -> list[Rule]:
        """Return the rules for the tasks of a gang among each other.

        Args:
            placed: Jobs of its group that run, with their nodes.
            instances: Number of tasks of all jobs in its group.
        """
        spec = job.spec
        rules = [*rules_of(spec.constraints, placed, instances)]
        if spec.topology is not None:
            rules += level_rules(spec, self.fabric.levels)
        if spec.app is not None and spec.near == spec.app and not placed:
            rules.append(Together(HOSTNAME[0]))
        if spec.app is not None and spec.away == spec.app:
            rules.append(Most(HOSTNAME[0], 1))
        return rules

    def by_evenness(
        self, job: Job, nodes: Mapping[AgentId, NodeCapacity]
    ) -> Iterator[Mapping[AgentId, NodeCapacity]]:
        """Yield nodes for a job in groups, those with the fewest tasks of its app first.

        All are one group unless a constraint asks for an even spread, or the job prefers to be where its app is.
        """
        spec = job.spec
        fields = [constraint.field for constraint in spec.constraints if constraint.is_even]
        prefers = spec.app is not None and spec.topology is not None and not spec.topology.is_required
        if not (fields or prefers) or spec.tasks > 1:
            yield nodes
            return
        placed = [job_place.node for job_place in self._of(_group(job))]
        held = {name: Counter(value_of(name, node) for node in placed) for name in fields}
        near = self._near(spec, placed)
        by_count: dict[tuple[int, ...], dict[AgentId, NodeCapacity]] = {}
        for agent_id, node in nodes.items():
            node_of_agent = self._state.cluster.nodes[agent_id]
            counts = tuple([held[name][value_of(name, node_of_agent)] for name in fields])
            by_count.setdefault((*counts, *near(agent_id)), {})[agent_id] = node
        yield from (by_count[counts] for counts in sorted(by_count))

    def _near(self, spec: JobSpec, placed: Sequence[Node]) -> Callable[[AgentId], tuple[bool, ...]]:
        """Return a function that tells whether a node is outside of the groups of some nodes.

        It returns a value for the preferred level and for each level above it; none if the job prefers no known
        level.

        Args:
            spec: Request of the job.
            placed: Nodes on which tasks of its app run.
        """
        fabric, topology = self.fabric, spec.topology
        if topology is None or topology.is_required or topology.level not in fabric.levels:
            return lambda _: ()
        levels = range(fabric.levels.index(topology.level), -1, -1)
        used = {
            (at, fabric.groups[node.id][at]) for node in placed if node.id in fabric.groups for at in levels
        }
        return lambda agent_id: tuple([(at, fabric.groups[agent_id][at]) not in used for at in levels])

    def _read(self) -> None:
        """Read where jobs run, and count the instances of apps."""
        self._apps, state = {}, self._state
        for task_id in state.work.live:
            task = state.work.tasks[task_id]
            job = state.work.holding_job(task)
            if job is not None:
                self._count(job)
                self._place(job, task.agent_id, task.hostname)
        for _, job_id in state.work.queue:
            self._count(state.work.jobs[job_id])

    def _count(self, job: Job) -> None:
        """Count a job's tasks as instances of its group, once."""
        group = _group(job)
        if group and job.id not in self._counted:
            self._counted.add(job.id)
            self._instances[group] = self._instances.get(group, 0) + job.spec.tasks

    def _place(self, job: Job, agent_id: AgentId, hostname: str = "") -> None:
        """Record that a task of a job runs on an agent."""
        placed = Placed(job.id, self._state.cluster.nodes.get(agent_id) or Node(agent_id, hostname))
        group = _group(job)
        if group and self._apps is not None:
            self._apps.setdefault(group, []).append(placed)
        if job.spec.away:
            self._shunned.setdefault(job.spec.away, []).append(placed)


def _keyless(node: Node) -> str:
    """Return why a node can get no secrets; "" if its monitor has reported a key for them."""
    if node.inventory is None:
        return "has no monitor yet that reports a key for secrets"
    if node.inventory.secrets_key:
        return ""
    return f"takes no secrets: {node.inventory.secrets_problem or 'its monitor knows no key for them'}"


def _group(job: Job) -> str | None:
    """Return the group of jobs that constraints compare: that of the app, or the tasks of a gang without an app."""
    return job.spec.app or (f"job {job.id}" if job.spec.tasks > 1 else None)
