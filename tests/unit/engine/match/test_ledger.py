"""The ledger of a match: the only caller of its books, at every take and every rollback."""

import ast
import importlib
import inspect
import pkgutil
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mesos_gpu.engine.match
import mesos_gpu.engine.queue
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.match import matching
from mesos_gpu.engine.match.ledger import Book, Ledger, Trial
from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.match.remains import FreeOffers, Launches, Pace
from mesos_gpu.engine.match.table import Index
from mesos_gpu.engine.queue.held import Held
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.queue.reserving import Reservations
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import Job, JobState, Placement
from mesos_gpu.policy.capacity.fit import Chosen
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from tests.doubles.builders import World, gpu, spec

BOOKS = {FreeOffers, Pace, Launches, Index, Placing, Held, Reservations, Neighbours}


class Sixth:
    """A book more: what stands, and how often something was undone."""

    def __init__(self) -> None:
        self.stands: list[Take] = []
        self.undone = 0

    def take(self, take: Take) -> None:
        self.stands.append(take)

    def undo(self, take: Take) -> None:
        assert self.stands.pop() is take, "the latest is undone first"
        self.undone += 1


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


@pytest.fixture
def sixth(monkeypatch: pytest.MonkeyPatch) -> Sixth:
    """Registered with the ledger of every match; the books of the engine know nothing of it."""
    book = Sixth()
    monkeypatch.setattr(matching, "Ledger", lambda *books: Ledger(*books, book))
    return book


def test_ledger_book_hears_of_all_that_is_launched(world: World, sixth: Sixth) -> None:
    for i in range(3):
        world.node(f"a{i}", gpu(f"g{2 * i}"), gpu(f"g{2 * i + 1}"))
    world.submit("single", gpus=1)
    world.submit("gang", gpus=1, tasks=3)
    launched = Counter((task.job_id, task.agent_id, task.gpus) for task in world.state.work.tasks.values())
    told = Counter((t.job.id if t.job else None, t.agent_id, t.gpus) for t in sixth.stands)
    assert told == launched
    assert sum(told.values()) == 3 + 1 + 3, "monitors, the single task and the members"


def test_ledger_book_hears_of_a_gang_that_is_rolled_back(
    world: World, sixth: Sixth, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(2):
        world.node(f"a{i}", gpu(f"g{2 * i}"), gpu(f"g{2 * i + 1}"))
    before = list(sixth.stands)
    fail_at(monkeypatch, lambda tasks: tasks == 2)
    world.submit("gang", gpus=1, tasks=3)
    assert world.job("gang").state is JobState.PENDING
    assert (sixth.stands, sixth.undone) == (before, 2)


def fail_at(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool]) -> None:
    """Let the placing of a gang's task fail, as where a card is opened meanwhile, by the number of tasks before it."""
    place_on, placed = Placing.place_on, Counter[str]()

    def place(self: Placing, job: Job, request: Request, node: NodeCapacity) -> Chosen | None:
        key = f"{id(self)} {job.id}"
        placed[key] += 1
        return None if fails(placed[key] - 1) else place_on(self, job, request, node)

    monkeypatch.setattr(Placing, "place_on", place)


class NoUndo:
    def take(self, take: Take) -> None:
        """Count it in, and never out."""


class NoTake:
    undo = None


def test_book_without_take_and_undo_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match="NoUndo is no book of a ledger: it has no undo"):
        Ledger(NoUndo())  # type: ignore[arg-type]  # mypy refuses it too: the comment would be unused
    with pytest.raises(TypeError, match="NoTake is no book of a ledger: it has no take and no undo"):
        Ledger().register(NoTake())  # type: ignore[arg-type]
    book = Sixth()
    with pytest.raises(TypeError, match="registered already"):
        Ledger(book, book)


def test_ledger_take_that_one_book_refuses_is_in_none() -> None:
    class Full(Sixth):
        def take(self, take: Take) -> None:
            raise ValueError("there is nothing left")

    first, last = Sixth(), Sixth()
    ledger = Ledger(first, Full(), last)
    with pytest.raises(ValueError, match="nothing left"):
        ledger.take(Take(AgentId("a")))
    assert (first.stands, first.undone, last.stands, ledger.takes) == ([], 1, [], ())


def test_checkpoints_can_be_nested() -> None:
    book = Sixth()
    ledger = Ledger(book)
    takes = [Take(AgentId(name)) for name in "abc"]
    with ledger.checkpoint() as outer:
        ledger.take(takes[0])
        with ledger.checkpoint():
            ledger.take(takes[1])
        with ledger.checkpoint() as kept:
            ledger.take(takes[2])
            kept.keep()
        outer.keep()
    assert book.stands == [takes[0], takes[2]] == list(ledger.takes)
    with ledger.checkpoint() as outer, ledger.checkpoint() as kept:
        ledger.take(takes[1])
        kept.keep()
    assert book.stands == [takes[0], takes[2]], (
        "what is kept within a trial that fails is rolled back with it"
    )


# --- the books of the engine


def test_spread_counts_what_the_same_match_has_placed(world: World) -> None:
    world.node("large", *(gpu(f"l{i}") for i in range(8)))
    world.node("small", gpu("s0"), gpu("s1"))
    world.node("other", gpu("o0"), gpu("o1"))
    jobs = [JobId(f"j{i}") for i in range(3)]
    wanted = spec(gpus=1, app="web", placement=Placement.SPREAD)
    world.feed(*(ev.JobSubmitted(job_id, wanted) for job_id in jobs))  # one match for all
    agents = {task.agent_id for task in world.state.work.tasks.values() if task.job_id in jobs}
    assert agents == {"large", "small", "other"}, "one on each, though the large one has most to spare"


def test_ledger_has_every_book_of_the_engine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Ledger] = []

    class Seen(Ledger):
        def __init__(self, *books: Book) -> None:
            super().__init__(*books)
            made.append(self)

    monkeypatch.setattr(matching, "Ledger", Seen)
    world.settings = world.settings.changed(queue_limits={"default": 9})
    world.node("a0", gpu("g0"))
    world.submit("j1", gpus=1)
    registered = max(({type(book) for book in ledger.books} for ledger in made), key=len)
    assert registered == BOOKS == _books_in(mesos_gpu.engine.match) | _books_in(mesos_gpu.engine.queue)


def _books_in(package: Any) -> set[type]:
    modules = [
        importlib.import_module(f"{package.__name__}.{m.name}")
        for m in pkgutil.iter_modules(package.__path__)
    ]
    classes = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    return {kind for kind in classes if callable(getattr(kind, "undo", None)) and kind is not Book}


def test_ledger_alone_calls_the_books_of_a_match() -> None:
    """`why` and plans of moves have Neighbours of their own, which are no book of any match."""
    folder = Path(mesos_gpu.engine.match.__file__).parent
    for path in sorted(folder.glob("*.py")):
        if path.name in ("ledger.py", "moves.py", "why.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                told = ast.unparse(node.func.value)
                assert node.func.attr != "undo", f"{path.name}:{node.lineno}"
                assert node.func.attr != "take" or told.endswith("ledger"), f"{path.name}:{node.lineno}"


def _picture(book: Book) -> Any:
    """Return all that a book knows, but for what it has not read yet."""
    match book:
        case FreeOffers():
            return {a: (book.capacity(a), book.resources(a), book.ports(a)) for a in book}
        case Pace():
            return {a: (book.under_way(a), book.room(a)) for a in book._state.cluster.nodes}
        case Launches():
            return {agent_id: list(entries) for agent_id, entries in book._entries.items() if entries}
        case Index():
            views = book._index._views
            arrays = {
                name: (view.cpu.tolist(), view.mem.tolist(), [list(free) for free in view.free])
                for name, view in views.items()
            }
            return dict(book._index.nodes), arrays or None
        case Placing():
            counts = {app: +count for app, count in (book._apps or {}).items() if +count}
            return book._drawn, None if book._apps is None else counts
        case Reservations():
            return {key: list(held) for key, held in book._below.items()} or None, book.every
        case Held():
            sums = book.sums
            return [dict(+each) for each in (sums.amounts, sums.users, sums.jobs, sums.members)], {
                **sums.leaves
            }
        case Neighbours():
            apps = (
                None
                if book._apps is None
                else {app: list(there) for app, there in book._apps.items() if there}
            )
            return book._launches, apps, {app: list(there) for app, there in book._shunned.items()}
    raise AssertionError(f"no picture of {type(book).__name__}")


def _same(before: Any, after: Any) -> bool:
    """Whether nothing has changed; what was not read before may be read now."""
    if isinstance(before, tuple) and isinstance(after, tuple):
        return len(before) == len(after) and all(map(_same, before, after))
    return before is None or bool(before == after)


@pytest.mark.parametrize("seeds", [15, pytest.param(40, marks=pytest.mark.long)])
def test_ledger_rollback_leaves_every_book_as_before(monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    rolled_back: Counter[str] = Counter()

    class Compared(Ledger):
        @contextmanager
        def checkpoint(self) -> Iterator[Trial]:
            before = [_picture(book) for book in self.books]
            with super().checkpoint() as trial:
                count = len(self.takes)
                yield trial
                taken = len(self.takes) - count
            if trial.kept:
                return
            for book, was in zip(self.books, before, strict=True):
                assert _same(was, _picture(book)), type(book).__name__
                rolled_back[type(book).__name__] += taken

    monkeypatch.setattr(matching, "Ledger", Compared)
    chance = random.Random(0)
    fail_at(monkeypatch, lambda tasks: tasks > 0 and chance.random() < 0.5)
    for seed in range(seeds):
        _submit_gangs(random.Random(seed))
    assert set(rolled_back) == {book.__name__ for book in BOOKS}
    assert min(rolled_back.values()) > seeds, "gangs that found places for some of their members only"


def _submit_gangs(chance: random.Random) -> None:
    """Submit gangs, some of which are compared with themselves or with each other."""
    settings = Settings.of("e", "m", queue_limits={"small": 4}, placement=chance.choice(list(Placement)))
    world = World(settings=settings)
    world.register()
    for i in range(3):
        world.node(f"a{i}", *(gpu(f"g{3 * i + k}", chance.choice(("A100", "T4"))) for k in range(3)))
    for i in range(12):
        apart = (Constraint("hostname", chance.choice((Operator.UNIQUE, Operator.GROUP_BY))),)
        world.submit(
            f"j{i}",
            tasks=chance.randint(1, 4),
            gpus=chance.choice((0, 1, 1, 2)),
            gpu_model=chance.choice(((), ("T4", "A100"))),
            queue=chance.choice(("small", "default")),
            app=chance.choice((None, "x", "y")),
            away=chance.choice((None, None, "y")),
            constraints=chance.choice(((), apart, apart)),
            timeout_s=chance.choice((None, 60.0, 600.0)),
        )
