"""Work of the reaper for each of several tasks, some dead and some not, with hosts of the test's own."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from isolator.confinement.enclosure import DENIED
from isolator.devices import cgroups, facts
from isolator.devices.rules import DriverFacts, Rule
from isolator.gpus.ledger import Claimed, Holding, Ledger, Owner, Trace
from isolator.gpus.share_claims import CardTrace, Room, ShareClaim
from isolator.host import processes
from isolator.node import programs, reaper
from isolator.node.reaper import Reaping, audit, end, end_dead, seal_left, strangers
from isolator.node.whose import ticks_now
from isolator.shares import card
from isolator.shares.mps import daemon as mps
from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.shares.share import Method, Share
from tests.conftest import wait_until

A, B, C, D = (GpuId(f"GPU-{letter}") for letter in "abcd")
SANDBOX, UID = Trace("sandbox", "box"), Trace("uid", "10 of it")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture
def dead() -> Owner:
    return replace(Owner.of(os.getpid()), boot_id="an earlier one")


@pytest.fixture
def me() -> Owner:
    return Owner.of(os.getpid())


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> "Undone":
    return Undone(monkeypatch)


class Undone:
    """Traces and tasks that are undone, in order, and the processes that are left of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order: list[str] = []
        self.left: dict[str, list[int]] = {}
        self.error: Exception | None = None
        monkeypatch.setattr(reaper, "undo", self.undo)
        monkeypatch.setattr(reaper, "seal", self.seal)
        monkeypatch.setattr(processes, "kill_leftovers", self.kill)

    def undo(self, trace: Trace) -> list[int]:
        self.order.append(trace.what)
        return self.left.get(trace.what, [])

    def seal(self, what: str, *_: object) -> None:
        self.order.append(f"seal {what}")
        if self.error is not None:
            raise self.error

    def kill(self, task: str, _timeout_s: float) -> list[int]:
        self.order.append(f"kill {task}")
        return self.left.get(task, [])


TRACES = (Trace("nodes", "first"), SANDBOX, Trace("cgroup1", "last"), UID)


@pytest.mark.parametrize(
    ("left", "pids"),
    [
        ({}, []),
        ({"t.1": [7]}, [7]),
        ({"last": [8]}, [8]),
        ({"t.1": [7], "first": [9], "last": [8]}, [7, 8, 9]),
    ],
)
def test_a_dead_task_is_released_when_nothing_of_it_is_left(
    ledger: Ledger, dead: Owner, undone: Undone, left: dict[str, list[int]], pids: list[int]
) -> None:
    ledger.claim("t.1", [A], dead, traces=TRACES)
    (before,) = ledger.holdings()
    undone.left = left
    assert end(ledger, before) == pids
    assert undone.order == ["kill t.1", "last", "first"]
    released = replace(before, gpus=(), traces=(SANDBOX, UID))
    assert ledger.holdings() == ((before,) if pids else (released,))


def test_each_dead_task_is_ended_and_no_other(
    ledger: Ledger, dead: Owner, me: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task, gpus, owner, traces in (
        ("odd.1", [A], dead, ()),
        ("alive.1", [B], me, ()),
        ("sealing.1", [], dead, (SANDBOX,)),
        ("failing.1", [C], dead, ()),
        ("stays.1", [], dead, ()),
        ("last.1", [], dead, ()),
    ):
        ledger.claim(task, gpus, owner, traces=traces)
    ended, tended = list[str](), list[Ledger]()

    def ending(_ledger: Ledger, holding: Holding) -> list[int]:
        ended.append(holding.task)
        if holding.task == "odd.1":
            raise ValueError("unforeseen")
        if holding.task == "failing.1":
            raise Unavailable("it hangs", remedy="none")
        return [7] if holding.task == "stays.1" else []

    monkeypatch.setattr(reaper, "end", ending)
    monkeypatch.setattr(card, "tend", tended.append)
    end_dead(ledger)
    assert ended == ["odd.1", "failing.1", "stays.1", "last.1"]
    assert tended == [ledger]
    sealed: list[Ledger] = []
    monkeypatch.setattr(reaper, "seal_left", sealed.append)
    reaper.reap(ledger)
    assert (len(ended), tended, sealed) == (8, [ledger] * 2, [ledger])


@pytest.mark.parametrize(
    ("left", "error", "stays"),
    [
        ({}, None, False),
        ({"t.1": [7]}, None, True),
        ({"10 of it": [7]}, None, True),
        ({}, PermissionError(1, "no"), True),
        ({}, Unavailable("no", remedy="none"), True),
    ],
)
def test_a_holding_is_dropped_when_all_of_it_is_sealed(
    ledger: Ledger,
    dead: Owner,
    me: Owner,
    undone: Undone,
    left: dict[str, list[int]],
    error: Exception | None,
    stays: bool,
) -> None:
    ledger.claim("alive.1", [], me, traces=(SANDBOX,))
    ledger.claim("held.1", [A], dead, traces=(SANDBOX,))
    ledger.claim("t.1", [], dead, traces=(UID, SANDBOX))
    undone.left, undone.error = left, error
    seal_left(ledger)
    assert undone.order == ["kill t.1", "seal box", *([] if error else ["10 of it"])]
    tasks = [holding.task for holding in ledger.holdings()]
    assert tasks == ["alive.1", "held.1", *(["t.1"] if stays else [])]


# --- the thread


class Work:
    """A function that waits until a test lets it go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = 0, threading.Event()
        self.error: Exception | None = None

    def __call__(self, *_: object) -> None:
        self.begun += 1
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Work, Work]]:
    ending, sealing = Work(), Work()
    monkeypatch.setattr(reaper, "end_dead", ending)
    monkeypatch.setattr(reaper, "seal_left", sealing)
    monkeypatch.setattr(reaper, "REAP_S", 0.01)
    yield ending, sealing
    ending.go_on.set()
    sealing.go_on.set()


def alive(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == name]


def test_reaper_and_sealer_are_at_work_once_at_a_time(ledger: Ledger, work: tuple[Work, Work]) -> None:
    ending, sealing = work
    reaping = Reaping(ledger)
    reaping.look()
    reaping.look()
    reaping.anew()
    assert (ending.begun, sealing.begun) == (1, 0)
    assert [each.daemon for each in alive("reaper")] == [True]
    ending.go_on.set()
    wait_until("the sealer is at work", lambda: sealing.begun == 1 and not alive("reaper"))
    for count in 2, 3:
        reaping.look()
        wait_until("the reaper has ended", lambda: not alive("reaper"))
        assert (ending.begun, sealing.begun) == (count, 1), "a sandbox that takes long keeps no card"
    assert [each.daemon for each in alive("sealer")] == [True]
    sealing.go_on.set()
    wait_until("the sealer has ended", lambda: not alive("sealer"))
    reaping.anew()
    wait_until("the next sealer is at work", lambda: sealing.begun == 2)


@pytest.mark.parametrize("error", [Unavailable("no", remedy="none"), PermissionError(1, "no")])
def test_errors_of_the_ledger_do_not_prevent_later_looks(
    ledger: Ledger, work: tuple[Work, Work], error: Exception
) -> None:
    ending, sealing = work
    ending.error = sealing.error = error
    ending.go_on.set()
    sealing.go_on.set()
    reaping = Reaping(ledger)
    for count in 1, 2:
        reaping.look()
        wait_until("both have ended", lambda: not alive("reaper") and not alive("sealer"))
        assert (ending.begun, sealing.begun) == (count, count)


def test_programs_are_looked_at_once_in_a_while(
    ledger: Ledger, work: tuple[Work, Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in work:
        each.go_on.set()
    seen: list[Path] = []

    def tidy(node: Path, _now: float) -> None:
        seen.append(node)
        raise PermissionError

    monkeypatch.setattr(programs, "tidy", tidy)
    now = [5.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    reaping = Reaping(ledger)
    for at, count in ((5.0, 1), (6.0, 1), (4.9 + programs.OFTEN_S, 1), (5.0 + programs.OFTEN_S, 2)):
        now[0] = at
        reaping._reap()
        assert seen == [ledger.directory] * count


# --- shares


@pytest.mark.parametrize(
    ("share", "rows", "drained"),
    [
        (None, [], []),
        (Share(1, 1, 1, Method.SHIM_WINDOWS), [CardTrace(A, mps.KIND, "x")], []),
        (Share(1, 1, 1, Method.SHIM_MPS2, "u"), [CardTrace(A, "other", "x")], []),
        (Share(1, 1, 1, Method.SHIM_MPS2, "u"), [CardTrace(B, mps.KIND, "x"), CardTrace(A, mps.KIND, "y")], ["y"]),
    ],
)  # fmt: skip
def test_clients_of_a_dead_share_are_drained_by_its_own_server(
    ledger: Ledger,
    dead: Owner,
    undone: Undone,
    monkeypatch: pytest.MonkeyPatch,
    share: Share | None,
    rows: list[CardTrace],
    drained: list[str],
) -> None:
    asked = ShareClaim(share, dict.fromkeys((A, C), Room(9))) if share else None
    ledger.claim("t.1", [A, C], dead, share=asked)
    for row in rows:
        ledger.note(row)
    seen: list[str] = []
    monkeypatch.setattr(mps, "host_of", lambda _env: "host")
    monkeypatch.setattr(mps.Domain, "of", lambda what: what)
    monkeypatch.setattr(mps, "drain", lambda _host, domain, _pids, _s: seen.append(domain))
    monkeypatch.setattr(reaper, "let_go", lambda *_: None)
    end(ledger, ledger.holdings()[0])
    assert seen == drained


# --- the rules of living tasks


@dataclass
class Box:
    """A cgroup, and the rules that were set."""

    path: Path
    own: bool = False
    right: bool = False
    error: Exception | None = None
    told: list[tuple[Rule, ...]] = field(default_factory=list)

    def allows_exactly(self, _rules: tuple[Rule, ...]) -> bool:
        return self.right

    def allow(self, rules: tuple[Rule, ...]) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(rules)


class Audited:
    """Living tasks t.1, t.2… with a container each, and their cgroups."""

    def __init__(self, ledger: Ledger, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger, self.directory = ledger, directory
        self.boxes: dict[str, Box] = {}
        self.verified: list[tuple[int, set[tuple[int, int]]]] = []
        monkeypatch.setattr(facts, "read_driver", lambda **_: DriverFacts({"nvidia": 195}))
        monkeypatch.setattr(facts, "extra_devices", lambda *_: ())
        monkeypatch.setattr(cgroups, "cgroup_of", lambda container, *_, **__: self.boxes[container])
        monkeypatch.setattr(cgroups, "pids_below", lambda path: [1] if path.name == "full" else [])
        monkeypatch.setattr(reaper, "firsts_of_engine", lambda _holdings: {"c-docker": 77})
        monkeypatch.setattr(
            reaper, "verify", lambda pid, devices, _majors: self.verified.append((pid, devices))
        )

    def claim(self, name: str, gpus: list[GpuId], owner: Owner, *traces: Trace, **box: object) -> Box:
        path = self.directory / str(box.pop("path", name))
        path.mkdir(exist_ok=True)
        claimed = self.ledger.claim(f"{name}.1", gpus, owner, container=f"c-{name}", traces=traces)
        assert claimed == Claimed()
        self.boxes[f"c-{name}"] = Box(path, **box)  # type: ignore[arg-type]
        return self.boxes[f"c-{name}"]

    def notes(self, env: dict[str, str] | None = None) -> list[str]:
        cards = (Gpu(A, "T4", 1, 3, ""), Gpu(B, "T4", 1, 4, ""), Gpu(D, "T4", 1, 5, ""))
        return audit(self.ledger, Inventory(cards, "nvml"), env or {"MESOS_GPU_ISOLATION": "cgroup1"})


@pytest.fixture
def audited(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audited:
    monkeypatch.setattr(facts, "isolation_name", lambda env: env["MESOS_GPU_ISOLATION"])
    return Audited(ledger, tmp_path, monkeypatch)


def test_rules_of_living_tasks_are_set_right(audited: Audited, me: Owner, dead: Owner) -> None:
    made, unmade = audited.directory / "made", audited.directory / "unmade"
    (made / DENIED).mkdir(parents=True)
    nodes, missing = Trace("nodes", str(made)), Trace("nodes", str(unmade))
    right = audited.claim("right", [A], me, nodes, right=True)
    lost = audited.claim("lost", [C], me, nodes)
    gone = audited.claim("gone", [], dead, nodes)
    sealing = audited.claim("sealing", [], me, SANDBOX)
    making = audited.claim("making", [], me, nodes, missing)
    starting = audited.claim("starting", [], me, nodes, own=True)
    away = audited.claim("away", [], me, nodes, path="none")
    away.path.rmdir()
    audited.claim("docker", [B], me, Trace("docker", "/s box"))
    audited.claim("docker2", [], me, Trace("other", "x"), Trace("docker", "/s box"))
    wrong = audited.claim("wrong", [D], me, nodes, Trace("other", str(unmade)))
    full = audited.claim("full", [], me, own=True)
    broken = audited.claim("broken", [], me, error=MesosGpuError("it cannot be set", remedy="none"))
    audited.ledger.claim("without.1", [], me)
    assert audited.notes() == [
        f"{wrong.path} of wrong.1 allowed other devices than the task holds: corrected",
        f"{full.path} of full.1 allowed other devices than the task holds: corrected",
        "the devices of broken.1 are wrong, or cannot be checked: it cannot be set\nTo fix: none",
    ]
    untouched = (right, lost, gone, sealing, making, starting, away)
    assert [box.told for box in (*untouched, broken)] == [[]] * 8
    assert [len(box.told) for box in (wrong, full)] == [1, 1]
    cards = {(rule.major, rule.minor) for rule in wrong.told[0] if rule.major == 195}
    assert cards == {(195, 5), (195, 255)}
    assert not {rule for rule in full.told[0] if rule.major == 195}
    assert audited.verified == [(77, {(195, 4), (195, 255)})]
    assert audited.notes({"MESOS_GPU_ISOLATION": "off"}) == []


# --- strangers


def test_strangers_are_told_by_card_and_by_who_holds_it(
    ledger: Ledger, me: Owner, dead: Owner, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pids
    ledger.claim("a.1", [A], Owner.of(first))
    ledger.claim("b.1", [B], replace(Owner.of(second), boot_id="an earlier one"))
    on = {A: [first, second], B: [second], C: []}
    text = f"pid {second} (sleep) of root, which no task accounts for"
    assert strangers(ledger, on) == {A: text, B: text}
    both = strangers(ledger, {B: [first, second]})
    assert both == {
        B: f"pid {first} (sleep) of root; pid {second} (sleep) of root, which no task accounts for"
    }
    assert strangers(ledger, {A: [first], C: []}) == {}
    assert strangers(ledger, {A: [first, 2**22 + 1]}) == {}, "what has ended is on no card"
    now = ticks_now()
    assert set(strangers(ledger, {B: [second]}, now)) == {B}
    assert strangers(ledger, {B: [second]}, Owner.of(second).start_ticks - 1) == {}, "it has that id since"
    assert set(strangers(ledger, {B: [second]}, Owner.of(second).start_ticks)) == {B}
    monkeypatch.setattr(mps, "member_of", lambda what: lambda pid: what == "server" and pid == second)
    ledger.note(CardTrace(B, "other", "server"))
    ledger.note(CardTrace(C, mps.KIND, "server"))
    ledger.note(CardTrace(GpuId("GPU-z"), mps.KIND, "server"))
    assert set(strangers(ledger, on)) == {A, B}
    ledger.note(CardTrace(B, mps.KIND, "server"))
    assert set(strangers(ledger, on)) == {A}


def test_a_stranger_without_an_account_is_named_by_its_number(ledger: Ledger) -> None:
    with subprocess.Popen(["sleep", "60"], user=61998) as process:
        wait_until("it is theirs", lambda: os.stat(f"/proc/{process.pid}").st_uid == 61998)
        seen = strangers(ledger, {A: [process.pid]})
        assert seen == {A: f"pid {process.pid} (sleep) of uid 61998, which no task accounts for"}
        process.send_signal(signal.SIGKILL)
