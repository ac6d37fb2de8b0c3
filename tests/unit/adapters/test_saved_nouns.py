"""A noun that is saved: one declaration, which the tables of the store, the state and the effects keep to."""

import dataclasses
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine.effects import RANK
from mesos_gpu.engine.state import PART_WITH
from mesos_gpu.model.saves import NOUNS, Noun, Saved

_WITH_LEASES = '''
import importlib.util, sqlite3, sys
from pathlib import Path

def patched(name, **changes):
    found = importlib.util.find_spec(name)
    source = Path(found.origin).read_text()
    for anchor, new in changes.values():
        assert source.count(anchor) == 1, anchor
        source = source.replace(anchor, new + anchor)
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    exec(compile(source, found.origin, "exec"), module.__dict__)
    package, _, own = name.rpartition(".")
    setattr(importlib.import_module(package), own, module)
    return module

saves = patched(
    "mesos_gpu.model.saves",
    classes=("@dataclass(frozen=True, slots=True)\\nclass Saved:", """
@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    until: float

@dataclass(frozen=True, slots=True)
class SaveLease(Save):
    lease: Lease

@dataclass(frozen=True, slots=True)
class ForgetLease(Save):
    name: str

"""),
    saved=("    doubtful: bool = ", "    leases: tuple[Lease, ...] = ()\\n"),
    noun=(")  # fmt: skip\\nNOUN_OF: Final", """
    Noun(Lease, "lease", "leases", SaveLease, ForgetLease, {"name": "name"}, ("name",), ("name",)),
"""),
)
patched(
    "mesos_gpu.engine.parts.calendar",
    names=("\\n@dataclass(slots=True)", "from mesos_gpu.model.saves import Lease\\n"),
    field=("    provisional: Provisional | None = ", "    leases: dict[str, Lease] = field(default_factory=dict)\\n"),
)
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine.journal import STATES, digest, words
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.saves import Lease
from tests.doubles.builders import saved_of
from tests.doubles.memory_store import MemoryStore

path = Path(sys.argv[1])
SqliteStore(path).close()
db = sqlite3.connect(path)
db.execute("CREATE TABLE leases (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")  # as a migration does
db.close()

turn = Turn(State(started_at=0.0), Settings.of("e", "m"), 1.0)
one, two = Lease("one", 1.5), Lease("two", 2.5)
turn.put(one)
turn.put(two)
turn.drop(Lease, "two")
assert turn.state.calendar.leases == {"one": one}
assert [words(effect) for effect in turn.effects] == ["SaveLease one", "SaveLease two", "ForgetLease two"]
assert digest(turn.effects)
assert STATES.decode(STATES.encode(turn.state)).calendar.leases == {"one": one}
assert saved_of(turn.state).leases == (one,)
for store in (SqliteStore(path), MemoryStore()):
    store.save(turn.effects)
    saved = store.load()
    store.close()
    assert saved.leases == (one,)
    assert State.restored(0.0, saved).calendar.leases == {"one": one}
'''


@pytest.mark.long
def test_saved_noun_that_is_declared_is_saved_and_restored(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITH_LEASES, str(tmp_path / "state.db")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.plural)
def test_saved_noun_has_its_place_everywhere(noun: Noun) -> None:
    assert noun.plural in {each.name for each in dataclasses.fields(Saved)}
    assert noun.plural in PART_WITH
    assert noun.save in RANK
    assert noun.forget is None or noun.forget in RANK


@pytest.mark.parametrize("noun", [noun for noun in NOUNS if noun.key], ids=lambda noun: noun.plural)
def test_saved_noun_table_is_made_by_the_migrations(noun: Noun, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    SqliteStore(path).close()
    db = sqlite3.connect(path)
    try:
        columns = db.execute(f"PRAGMA table_info({noun.table or noun.plural})").fetchall()
    finally:
        db.close()
    assert [name for _, name, *_ in columns] == [*noun.columns, "body"]
    assert {name for _, name, _, _, _, place in columns if place} == set(noun.key)
