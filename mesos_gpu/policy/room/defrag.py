"""Fewest moves of jobs that make room for a request. Pure: work is limited by a count, never by a clock.

There are two searches. For small clusters A* over all places of all jobs, which is exact. For others, a node is chosen
for the request, and its jobs move to nodes with room; only where that fails, room is made for them in the same way.
"""

import heapq
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Final

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.plan import Plan
from mesos_gpu.model.resources import AMOUNTS, NOTHING, total, units
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.candidates import CandidateNode, Movable, Open, Stage, chosen, least_departures

MAX_MOVES: Final = 16
MAX_WORK: Final = 20_000  # moves that one search may examine
SMALL: Final = 400  # product of jobs and nodes up to which the exact search is used


@dataclass(frozen=True, slots=True)
class Problem:
    """Request to make room for, and the nodes that may be changed for it."""

    request: Request  # requirements of each task
    tasks: int
    candidates: Sequence[CandidateNode]  # nodes that may get work
    open_to: Open
    bound: bool = False  # whether the request's possible nodes depend on the places of other jobs
    hopeless: str = ""  # reason if it is known beforehand that no plan can help; else ""


def plan(problem: Problem, *, most_work: int = MAX_WORK, small: int = SMALL) -> Plan:
    """Return the plan with the fewest moves; of several the one that loses least work, then the first by names.

    Args:
        problem: Request to make room for, and the nodes that may be changed.
        most_work: Largest number of moves that a search examines before it returns the best plan so far.
        small: Product of jobs and nodes up to which the search is exact. Above it, `Plan.proven` is false if a shorter
            plan may exist.
    """
    candidates = [
        replace(candidate, tasks=tuple(sorted(candidate.tasks, key=_by_loss)))
        for candidate in problem.candidates
    ]
    candidates.sort(key=lambda candidate: (candidate.node.hostname, candidate.node.agent_id))
    problem = replace(problem, candidates=candidates)
    start = _Seats(problem).filled(Stage())
    if len(start.members) == problem.tasks:
        where = ", ".join(dict.fromkeys(member.hostname for member in start.members))
        return Plan(start.members, (), proven=True, reason=f"it fits now on {where}: no move is needed")
    movable = sum(len(candidate.tasks) for candidate in candidates)
    why = problem.hopeless or _hopeless(problem, movable)
    if why:
        return _none(why, proven=True)
    if movable * len(candidates) <= small:
        exact = _Exact(problem, most_work)
        stage = exact.search()
        if stage is not None:
            return _plan_of(stage, proven=True)
        if not exact.cut:
            return _none(_nowhere(movable), proven=True)
    targeted = _Targeted(problem, most_work)
    stage = targeted.search()
    if stage is not None:
        return _plan_of(stage, proven=targeted.proven)
    return _none(f"{_nowhere(movable)}, as far as a search of limited length can tell", proven=False)


def _plan_of(stage: Stage, *, proven: bool) -> Plan:
    """Return the plan that leads to a stage."""
    where = ", ".join(dict.fromkeys(member.hostname for member in stage.members))
    moves = "1 move makes" if len(stage.moves) == 1 else f"{len(stage.moves)} moves make"
    doubt = "" if proven else "; not proven to be the fewest"
    return Plan(stage.members, stage.moves, proven, f"{moves} room on {where}{doubt}")


def _none(why: str, *, proven: bool) -> Plan:
    """Return an empty plan with a reason."""
    return Plan((), (), proven, f"no plan: {why}")


def _nowhere(movable: int) -> str:
    """Return the message that moves do not help."""
    if movable == 1:
        return "the 1 preemptible job that could move has nowhere to go that helps"
    return f"the {movable} preemptible jobs that could move have nowhere to go that helps"


def _hopeless(problem: Problem, movable: int) -> str:
    """Return why no plan exists, if a cheap test shows it; "" otherwise."""
    if not movable:
        return "no running job may be moved: only preemptible jobs of one task can be"
    if why := _too_little(problem):
        return why
    if problem.tasks == 1 and all(
        _least(problem.request, candidate) is None for candidate in problem.candidates
    ):
        jobs = "1 preemptible job" if movable == 1 else f"{movable} preemptible jobs"
        return f"no node has room for it even without the {jobs} that could move"
    shapes = {task.request for candidate in problem.candidates for task in candidate.tasks}
    if len(shapes) * len(problem.candidates) > MAX_WORK:
        return ""
    homes = {
        request: [
            i for i, candidate in enumerate(problem.candidates) if chosen(request, candidate.node) is not None
        ]
        for request in shapes
    }
    for i, candidate in enumerate(problem.candidates):
        if any(homes[task.request] not in ([], [i]) for task in candidate.tasks):
            return ""
    return _nowhere(movable)


def _least(request: Request, candidate: CandidateNode) -> int | None:
    """Return the least number of jobs that must leave before the request fits; None if it never fits."""
    return least_departures(request, candidate) if candidate.able else None


def _too_little(problem: Problem) -> str:
    """Return a message if the cluster has too little free in total, as moves never free anything; "" otherwise."""
    need = problem.request.resources.scaled(problem.tasks)
    # Count healthy GPUs, as the number from Mesos includes sick ones.
    gpus = sum(len(candidate.node.gpus) for candidate in problem.candidates)
    nodes = [candidate.node for candidate in problem.candidates]
    # The resources that cover an open GPU come back when its last share has moved to another one.
    free = total(node.free + node.cover.scaled(len(node.parts)) for node in nodes).with_gpus(gpus)
    for amount, _ in sorted(free.lacking(need).items(), key=lambda item: item[0].name != "gpus"):
        i = AMOUNTS.index(amount)
        return (
            f"only {units(free.milli[i]):g} {amount.noun} are free in all, and it needs {units(need.milli[i]):g}: "
            "moves make none free"
        )
    return ""


class _Seats:
    """Placement of the request's members on candidate nodes, at a stage of a plan."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.request = problem, problem.request

    def candidate(self, stage: Stage, i: int) -> CandidateNode:
        """Return a candidate as it is at a stage."""
        return stage.changed.get(i) or self.problem.candidates[i]

    def order(self, stage: Stage) -> list[int]:
        """Return the indexes of the candidates, those with the fewest free GPUs first."""
        return sorted(
            range(len(self.problem.candidates)), key=lambda i: len(self.candidate(stage, i).node.gpus)
        )

    def filled(self, stage: Stage) -> Stage:
        """Return the stage with as many members of the request placed as fit, on the fullest nodes first."""
        for i in self.order(stage):
            while len(stage.members) < self.problem.tasks:
                seated = self.seated(stage, i)
                if seated is None:
                    break
                stage = seated
        return stage

    def seated(self, stage: Stage, i: int) -> Stage | None:
        """Return the stage with one more member on a candidate; None if it does not fit or may not go there."""
        candidate = self.candidate(stage, i)
        seated = stage.seating(self.request, i, candidate) if candidate.able else None
        return seated if seated is not None and self.may(None, i, stage) else None

    def may(self, job_id: JobId | None, i: int, stage: Stage) -> bool:
        """Return whether a job (or the request, for None) may go to a candidate at a stage."""
        members = [member.agent_id for member in stage.members]
        return self.problem.open_to(job_id, self.problem.candidates[i].node.agent_id, stage.moved, members)

    def need(self, stage: Stage, i: int) -> int | None:
        """Return the least number of jobs that must leave a candidate before the request fits; None if never."""
        least = _least(self.request, self.candidate(stage, i))
        return least if least != 0 or self.may(None, i, stage) else 1


class _Exact(_Seats):
    """A* search over all places of all jobs."""

    def __init__(self, problem: Problem, most_work: int) -> None:
        super().__init__(problem)
        self._left = most_work
        self.cut = False

    def search(self) -> Stage | None:
        """Return the best plan; None if there is no plan, or the search was cut."""
        serial, seen = count(), set()
        heap = [(self._at_least(Stage()), 0.0, next(serial), Stage())]
        while heap and not self.cut:
            _, _, _, stage = heapq.heappop(heap)
            if (key := _key(stage)) in seen:
                continue
            seen.add(key)
            done = self.filled(stage)
            if len(done.members) == self.problem.tasks:
                return done
            for after in self._next(stage):
                least = len(after.moves) + self._at_least(after)
                heapq.heappush(heap, (least, after.lost_gpu_s, next(serial), after))
        return None

    def _next(self, stage: Stage) -> Iterator[Stage]:
        """Yield the stages after each possible move; set `cut` once the limit of work is exceeded."""
        candidates = [(i, self.candidate(stage, i)) for i in range(len(self.problem.candidates))]
        for source in candidates:
            for task in source[1].tasks:
                for to in candidates:
                    self._left -= 1
                    if to[0] == source[0]:
                        continue
                    after = stage.moving(task, source, to)
                    if after is not None and self.may(task.job_id, to[0], stage):
                        yield after
        self.cut = self._left < 0

    def _at_least(self, stage: Stage) -> int:
        """Return a lower bound of the number of further moves."""
        if self.problem.tasks > 1 or self.problem.bound:
            return 0 if len(self.filled(stage).members) == self.problem.tasks else 1
        needs = (_least(self.request, self.candidate(stage, i)) for i in range(len(self.problem.candidates)))
        return min((need for need in needs if need is not None), default=1)


def _key(stage: Stage) -> object:
    """Return a key that is equal for stages with equal continuations.

    Cards of one kind are interchangeable. The moved jobs are part of the key, as moving them again loses no more work.
    """
    kinds = frozenset(
        (i, _cards(candidate.node), frozenset(map(_on_shared, candidate.tasks)))
        for i, candidate in stage.changed.items()
    )
    return frozenset(stage.moved.items()), kinds


class _Cut(Exception):
    """Raised when the limit of work is reached."""


class _Targeted(_Seats):
    """Search that chooses a node for the request, then nodes for the jobs that leave it."""

    def __init__(self, problem: Problem, most_work: int) -> None:
        super().__init__(problem)
        self._work, self._left = most_work, 0
        self._ranked: dict[Hashable, list[tuple[int, int, list[int]]]] = {}
        self._known: dict[tuple[Request, int], int | None] = {}  # least departures of unchanged candidates
        self._found: list[Stage] = []  # plans with one number of moves, each better than the one before
        self._cut = False
        self._social = problem.bound or any(
            task.bound for candidate in problem.candidates for task in candidate.tasks
        )
        self._kinds = [
            i if self._social else _alike(candidate) for i, candidate in enumerate(problem.candidates)
        ]
        self.proven = False

    def search(self) -> Stage | None:
        """Return the best plan found; None if none was found."""
        stage = self.filled(Stage())
        while len(stage.members) < self.problem.tasks:
            longer = self._one_more(stage)
            if longer is None:
                return None
            stage = self.filled(longer)
        self.proven = len(stage.moves) == 1 or (self.proven and self.problem.tasks == 1)
        return stage

    def _one_more(self, stage: Stage) -> Stage | None:
        """Extend a plan by the fewest moves that make room for one more task; None if `MAX_MOVES` do not suffice."""
        targets = [
            (need, i)
            for i in range(len(self.problem.candidates))
            if (need := self.need(stage, i)) is not None
        ]
        least = max(min((need for need, _ in targets), default=MAX_MOVES + 1), 1)
        for budget in range(least, MAX_MOVES + 1):
            # The search is exact up to two moves above the minimum: at most one of them is not from the target.
            self.proven = budget == least or not (self._social or self._cut or budget > least + 2)
            for chains in (False, True):
                able = [(need, i) for need, i in targets if need + chains <= budget]
                best = self._level(stage, able, budget, chains=chains)
                if best is not None:
                    return best
        return None

    def _level(self, stage: Stage, able: list[tuple[int, int]], budget: int, *, chains: bool) -> Stage | None:
        """Return the best plan with up to `budget` moves.

        With `chains`, in which room is made for moved jobs, too, the first plan is taken: finding the cheapest would
        take too long.
        """
        share = self._left = self._work // 2
        self._found, failed = [], set[Hashable]()
        for loss, i in sorted((self._least_loss(stage, need, i), i) for need, i in able):
            if loss >= self._bar or (chains and self._found):
                break
            kind = self._kind(stage, i)
            if kind not in failed:
                try:
                    self._reach(stage, i, _Rest(budget, chains=chains))
                except _Cut:
                    self._cut = True
                    break
            if not self._found:
                failed.add(kind)
        self._work -= share - self._left
        return self._found[-1] if self._found else None

    def _kind(self, stage: Stage, i: int) -> Hashable:
        """Return a key that is equal for interchangeable candidates, as long as nothing has changed there."""
        return i if i in stage.changed else self._kinds[i]

    @property
    def _bar(self) -> float:
        """GPU-seconds of lost work that the next plan must stay below."""
        return self._found[-1].lost_gpu_s if self._found else inf

    def _least_loss(self, stage: Stage, need: int, i: int) -> float:
        """Return a lower bound of the lost work if `need` jobs leave a candidate."""
        losses = sorted(task.lost_gpu_s for task in self.candidate(stage, i).tasks)
        return stage.lost_gpu_s + sum(losses[:need])

    def _reach(self, stage: Stage, i: int, rest: "_Rest") -> None:
        """Record plans with room for one more member on a candidate, each better than the one before."""
        for ready in self._room(stage, self.request, None, i, rest):
            seated = self.seated(ready, i)
            if seated is not None and seated.lost_gpu_s < self._bar:
                self._found.append(seated)

    def _room(
        self, stage: Stage, request: Request, job_id: JobId | None, i: int, rest: "_Rest"
    ) -> Iterator[Stage]:
        """Yield stages in which a request fits on a candidate, after moves of jobs that are there.

        Args:
            stage: Stage to start from.
            request: Requirements to make room for.
            job_id: Job that is to move there; None for the plan's own request.
            i: Index of the candidate.
            rest: Limits of what the search may still do.
        """
        least = self._departures(stage, request, i)
        if least == 0:
            if self.may(job_id, i, stage):
                yield stage
                return
            least = 1
        if least is None or least > rest.budget:
            return
        spare, gone = rest.budget - least if rest.chains else 0, set[JobId]()
        for task in sorted(self.candidate(stage, i).tasks, key=_by_loss):
            if task.job_id in rest.locked or stage.lost_gpu_s + task.lost_gpu_s >= self._bar:
                continue
            # Without chains the order of departures does not matter: exclude jobs that were tried before.
            gone = {task.job_id} if rest.chains else gone | {task.job_id}
            locked = replace(rest, locked=rest.locked | gone, path=rest.path | {i})
            for ready, j in self._homes(stage, task, i, replace(locked, budget=spare)):
                after = ready.moving(task, (i, self.candidate(ready, i)), (j, self.candidate(ready, j)))
                if after is not None:
                    left = rest.budget - len(after.moves) + len(stage.moves)
                    yield from self._room(
                        after, request, job_id, i, replace(rest, budget=left, locked=locked.locked)
                    )

    def _homes(self, stage: Stage, task: Movable, source: int, rest: "_Rest") -> Iterator[tuple[Stage, int]]:
        """Yield stages in which the job fits on another candidate, with that candidate."""
        for j in self._candidates(stage, task.request, source, rest):
            self._left -= 1
            if self._left < 0:
                raise _Cut
            if stage.lost_gpu_s + task.lost_gpu_s >= self._bar:
                return
            for ready in self._room(stage, task.request, task.job_id, j, rest):
                yield ready, j

    def _departures(self, stage: Stage, request: Request, i: int) -> int | None:
        """Return the least departures before a request fits on a candidate, cached for unchanged candidates."""
        if i in stage.changed:
            return least_departures(request, stage.changed[i])
        if (request, i) not in self._known:
            self._known[request, i] = least_departures(request, self.problem.candidates[i])
        return self._known[request, i]

    def _candidates(self, stage: Stage, request: Request, source: int, rest: "_Rest") -> Iterator[int]:
        """Yield candidates where a request may fit after some departures, the best first; of equal ones only one."""
        special = {*stage.changed, *rest.path}
        yield from sorted(special - {source})
        for need, _, equal in self._ranking(request):
            if need > rest.budget:
                return
            candidate = next((i for i in equal if i not in special), source)
            if candidate != source:
                yield candidate

    def _ranking(self, request: Request) -> list[tuple[int, int, list[int]]]:
        """Return the kinds of candidates: least departures, number of free GPUs, and indexes."""
        kind = request.gpu, request.min_driver
        if kind not in self._ranked:
            bare = replace(request, resources=NOTHING)  # few different ones, so that caching pays
            by_kind: dict[Hashable, list[int]] = {}
            for i in range(len(self.problem.candidates)):
                by_kind.setdefault(self._kind(Stage(), i), []).append(i)
            candidates = [(self.problem.candidates[numbers[0]], numbers) for numbers in by_kind.values()]
            needs = [
                (least_departures(bare, candidate), len(candidate.node.gpus), numbers)
                for candidate, numbers in candidates
            ]
            self._ranked[kind] = sorted(
                (need, free, numbers) for need, free, numbers in needs if need is not None
            )
        return self._ranked[kind]


@dataclass(frozen=True, slots=True)
class _Rest:
    """Limits of what a search may still do."""

    budget: int  # number of moves
    chains: bool  # whether to make room for jobs that move
    locked: frozenset[JobId] = frozenset()  # jobs that are about to move
    path: frozenset[int] = frozenset()  # candidates that they are about to leave


def _alike(candidate: CandidateNode) -> Hashable:
    """Return a key that is equal for candidates that differ only in names and in how long their jobs have run."""
    free, tasks = _cards(candidate.node), Counter(_seat(task) for task in candidate.tasks)
    amounts = candidate.node.free.with_gpus(0)
    return amounts, candidate.node.driver, candidate.able, free, frozenset(tasks.items())


def _cards(node: NodeCapacity) -> tuple[tuple[object, ...], ...]:
    """Return the free GPUs of a node by kind; GPUs that are open to shares with their identity."""
    parts = {part.gpu_id: part for part in node.parts}
    return tuple(sorted([(*_card(gpu), repr(parts.get(gpu.id, ""))) for gpu in node.gpus]))


def _seat(task: Movable) -> Hashable:
    """Return a key of what a job requests and holds on its node; for a share also on which GPUs."""
    return task.request, tuple(sorted(map(_card, task.gpus))), task.share, _on_shared(task)[1:]


def _on_shared(task: Movable) -> tuple[str, ...]:
    """Return the job's identifier and the GPUs of its shares; only "" for a job with whole GPUs."""
    return (task.job_id, *(gpu.id for gpu in task.gpus)) if task.share is not None else ("",)


def _card(gpu: Gpu) -> tuple[str, int, str]:
    """Return the properties by which GPUs are interchangeable."""
    return gpu.model, gpu.memory_mib, gpu.compute_capability or ""


def _by_loss(task: Movable) -> tuple[float, str, JobId]:
    return task.lost_gpu_s, task.name, task.job_id
