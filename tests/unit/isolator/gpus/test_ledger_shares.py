"""The ledger of shares: what does not fit is refused whatever was believed, and what is a card's outlives its tasks."""

import itertools
import os
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Holding, Ledger, Owner, Refused, Stale, Trace
from isolator.gpus.share_claims import CLOSED, CardTrace, Room, ShareClaim
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.shares.share import Method, Share
from tests.unit.isolator.gpus.test_ledger import A, B, dead_owner

QUARTER = Share(250, 1000, 1000, Method.SHIM_WINDOWS)
WINDOWS = CardTrace(A, "windows", "")


def ask(
    share: Share = QUARTER, *cards: CardTrace, memory_mib: int = 4000, compute_milli: int = 1000
) -> ShareClaim:
    room = Room(memory_mib, compute_milli)
    return ShareClaim(share, {A: room, B: room}, cards)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "node" / "ledger.sqlite")


@pytest.fixture
def tenant() -> Iterator[Callable[[], Owner]]:
    """Living owners, each another."""
    processes: list[subprocess.Popen[bytes]] = []

    def another() -> Owner:
        processes.append(subprocess.Popen(["sleep", "600"]))
        return Owner.of(processes[-1].pid)

    yield another
    for process in processes:
        process.kill()
        process.wait()


def test_a_card_takes_as_many_shares_by_mps_as_its_server_takes_clients(
    ledger: Ledger, tenant: Callable[[], Owner]
) -> None:
    share = Share(10, 10, 10, Method.SHIM_MPS2, "alice")
    claim = ShareClaim(share, {A: Room(4000, clients=2)})
    for number in range(2):
        assert ledger.claim(f"t{number}", [A], tenant(), share=claim) == Claimed()
    refused = ledger.claim("t2", [A], tenant(), share=claim)
    assert isinstance(refused, Refused)
    assert refused.why == "GPU-a: its MPS server takes 2 clients, and 2 shares have one"
    holding = ledger.holdings()[0]
    assert ledger.resize("t0", holding.owner, claim) == Claimed()  # one's own is not in one's way


def test_a_card_is_shared_until_it_is_full(ledger: Ledger, tenant: Callable[[], Owner]) -> None:
    for number in range(4):
        assert ledger.claim(f"t{number}", [A], tenant(), share=ask()) == Claimed()
    refused = ledger.claim("t4", [A], tenant(), share=ask())
    assert isinstance(refused, Refused)
    assert refused.why == "GPU-a: of its 4000 MiB of memory 4000 are held, and 1000 more are asked for"
    assert [held.task for held in refused.held] == ["t0", "t1", "t2", "t3"]
    first = ledger.holdings()[0]
    assert (first.gpus, first.share) == ((A,), QUARTER)
    ledger.release("t0", first.owner)
    assert ledger.claim("t4", [A], tenant(), share=ask()) == Claimed()


@pytest.mark.parametrize(
    ("share", "room", "why"),
    [
        (replace(QUARTER, memory_mib=3001), {}, "of its 4000 MiB of memory 1000 are held, and 3001 more are asked for"),
        (replace(QUARTER, compute_milli=751), {},
         "of its 1000 thousandths of compute 250 are held, and 751 more are asked for"),
        (replace(QUARTER, compute_milli=751), {"compute_milli": 1500}, ""),
        (replace(QUARTER, memory_mib=3001), {"compute_milli": 9000},
         "of its 4000 MiB of memory 1000 are held, and 3001 more are asked for"),
        (replace(QUARTER, method=Method.TURNS), {}, "its shares are enforced by shim+windows, but this one by turns"),
        (replace(QUARTER, memory_mib=3000, compute_milli=750), {}, ""),
    ],
)  # fmt: skip
def test_ledger_grants_a_share_that_fits_beside_another(
    ledger: Ledger, tenant: Callable[[], Owner], share: Share, room: dict[str, int], why: str
) -> None:
    ledger.claim("t1", [A], tenant(), share=ask())
    answer = ledger.claim("t2", [A, B], tenant(), share=ask(share, **room))
    assert answer == Claimed() if not why else isinstance(answer, Refused)
    assert getattr(answer, "why", "") == (why and f"GPU-a: {why}")
    held = [holding.gpus for holding in ledger.holdings()]
    assert held == ([(A,)] if why else [(A,), (A, B)]), "all or nothing"


def test_whole_and_share_are_never_on_one_card(ledger: Ledger, tenant: Callable[[], Owner]) -> None:
    ledger.claim("share", [A], tenant(), share=ask())
    whole = ledger.claim("whole", [B, A], tenant())
    assert isinstance(whole, Refused)
    assert [held.task for held in whole.held] == ["share"]
    ledger.claim("whole", [B], tenant())
    share = ledger.claim("t3", [B], tenant(), share=ask())
    assert isinstance(share, Refused)
    assert share.why == "GPU-b: it is held whole"


def test_a_domain_is_one_users(ledger: Ledger, tenant: Callable[[], Owner]) -> None:
    mps = replace(QUARTER, method=Method.SHIM_MPS2, domain="ann")
    assert ledger.claim("t1", [A], tenant(), share=ask(mps)) == Claimed()
    refused = ledger.claim("t2", [A], tenant(), share=ask(replace(mps, domain="bob")))
    assert isinstance(refused, Refused)
    assert refused.why == "GPU-a: its shares belong to the user 'ann'"
    assert ledger.claim("t3", [A], tenant(), share=ask(mps)) == Claimed()


def test_an_instance_is_one_tasks(ledger: Ledger, tenant: Callable[[], Owner]) -> None:
    mig = replace(QUARTER, method=Method.MIG, instance="MIG-1")
    assert ledger.claim("t1", [A], tenant(), share=ask(mig)) == Claimed()
    refused = ledger.claim("t2", [A], tenant(), share=ask(mig))
    assert isinstance(refused, Refused)
    assert refused.why == "GPU-a: its instance MIG-1 is held"
    assert ledger.claim("t3", [A], tenant(), share=ask(replace(mig, instance="MIG-2"))) == Claimed()


def test_the_dead_hold_their_memory_until_they_are_dropped(
    ledger: Ledger, tenant: Callable[[], Owner]
) -> None:
    gone = dead_owner()
    ledger.claim("dead", [A], gone, share=ask(replace(QUARTER, memory_mib=3000)))
    assert ledger.claim("t1", [A], tenant(), share=ask()) == Claimed(), "beside them is room enough"
    stale = ledger.claim("t2", [A], tenant(), share=ask())
    assert isinstance(stale, Stale)
    assert [held.task for held in stale.dead] == ["dead"]
    whole = ledger.claim("t3", [A], tenant())
    assert isinstance(whole, Refused), "a living one is in the way, too"
    ledger.drop(stale.dead[0])
    assert ledger.claim("t2", [A], tenant(), share=ask()) == Claimed()


def test_a_repeated_claim_is_one(ledger: Ledger, tenant: Callable[[], Owner]) -> None:
    mine = tenant()
    big = ask(replace(QUARTER, memory_mib=3000))
    assert [ledger.claim("t1", [A], mine, share=big) for _ in range(2)] == [Claimed(), Claimed()]
    assert len(ledger.holdings()) == 1


# --- resize


def test_a_share_grows_and_shrinks_within_its_card(ledger: Ledger, tenant: Callable[[], Owner]) -> None:
    mine = tenant()
    ledger.claim("t1", [A], mine, share=ask())
    ledger.claim("t2", [A], tenant(), share=ask())
    assert ledger.resize("t1", mine, ask(replace(QUARTER, memory_mib=3000, compute_milli=750))) == Claimed()
    refused = ledger.resize("t1", mine, ask(replace(QUARTER, memory_mib=3001)))
    assert isinstance(refused, Refused)
    assert [held.share.memory_mib for held in ledger.holdings() if held.share] == [3000, 1000]
    with pytest.raises(NotFound, match="t2 holds no share"):
        ledger.resize("t2", mine, ask())


# --- of cards


def test_card_trace_is_written_with_the_claim_and_adopted(
    ledger: Ledger, tenant: Callable[[], Owner]
) -> None:
    first = tenant()
    ledger.claim("t1", [A], first, share=ask(QUARTER, WINDOWS))
    ledger.note(replace(WINDOWS, state="planned"))
    ledger.claim("t2", [A], tenant(), share=ask(QUARTER, WINDOWS))
    assert ledger.cards(A) == (replace(WINDOWS, state="planned"),)
    assert ledger.cards(B) == ()
    ledger.release("t1", first)
    assert ledger.cards() == (replace(WINDOWS, state="planned"),), "it stays for the others"


def test_card_trace_without_shares_stands_in_the_way_of_other_uses(
    ledger: Ledger, tenant: Callable[[], Owner]
) -> None:
    daemon = CardTrace(A, "mps2", "/run/mps/1", "4711")
    mps = replace(QUARTER, method=Method.SHIM_MPS2, domain="ann")
    first = tenant()
    ledger.claim("t1", [A], first, share=ask(mps, daemon))
    ledger.release("t1", first)
    assert ledger.claim("whole", [A], tenant()) == Stale(cards=(daemon,))
    assert ledger.claim("windows", [A], tenant(), share=ask(QUARTER, WINDOWS)) == Stale(cards=(daemon,))
    assert ledger.holdings() == ()
    last = tenant()
    assert ledger.claim("t2", [A], last, share=ask(mps, daemon)) == Claimed(), "who needs it, adopts it"
    ledger.release("t2", last)
    ledger.forget(daemon)
    assert ledger.claim("whole", [A], tenant()) == Claimed()


def test_a_card_that_is_closed_takes_no_more_shares(ledger: Ledger, tenant: Callable[[], Owner]) -> None:
    first = tenant()
    ledger.claim("t1", [A], first, share=ask())
    ledger.note(CardTrace(A, CLOSED, "its daemon does not answer"))
    refused = ledger.claim("t2", [A], tenant(), share=ask())
    assert isinstance(refused, Refused)
    assert refused.why == "GPU-a takes no more shares: its daemon does not answer"
    ledger.release("t1", first)
    assert isinstance(ledger.claim("t2", [A], tenant(), share=ask()), Stale)


def test_turn_on_a_card_is_for_one_at_a_time(ledger: Ledger) -> None:
    said: list[str] = []

    def other() -> None:
        try:
            with ledger.turn([B, A], timeout_s=0.05):
                said.append("both at once")
        except Unavailable as error:
            said.append(error.what)

    with ledger.turn([A]):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert said == ["another process has been working on the shares of GPU-a for 0.05 s"]
    with ledger.turn([B, A, B], timeout_s=0.0):
        pass


def test_a_turn_needs_no_ledger_that_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").mkdir()
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with ledger.turn([A], timeout_s=0.0), pytest.raises(Unavailable):
        ledger.holdings()


def test_the_ledger_is_closed_to_others(ledger: Ledger, tenant: Callable[[], Owner]) -> None:
    ledger.claim("t1", [A], tenant(), share=ask())
    files = [path for path in ledger.directory.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_a_ledger_of_version_2_is_brought_up(tmp_path: Path, tenant: Callable[[], Owner]) -> None:
    path = tmp_path / "ledger.sqlite"
    owner = tenant()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(
            """CREATE TABLE holdings (id INTEGER PRIMARY KEY, task TEXT NOT NULL, container TEXT NOT NULL,
                 pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, boot_id TEXT NOT NULL,
                 pid_namespace INTEGER NOT NULL, since REAL NOT NULL, traces TEXT NOT NULL,
                 UNIQUE (task, pid, start_ticks, boot_id, pid_namespace));
               CREATE TABLE claims (gpu TEXT PRIMARY KEY,
                 holding INTEGER NOT NULL REFERENCES holdings (id) ON DELETE CASCADE) WITHOUT ROWID;
               PRAGMA user_version=2;"""
        )
        row = ("t1", "c-1", *astuple(owner), 5.0, '[["nodes", "/dev/x"]]')
        db.execute("INSERT INTO holdings VALUES (7, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        db.executemany("INSERT INTO claims VALUES (?, 7)", [(A,), (B,)])
    db.close()
    path.chmod(0o644)
    ledger = Ledger(path)
    assert ledger.holdings() == (Holding("t1", owner, (A, B), "c-1", (Trace("nodes", "/dev/x"),), 5.0),)
    assert path.stat().st_mode & 0o077 == 0
    assert isinstance(ledger.claim("t2", [A], tenant(), share=ask()), Refused)
    ledger.release("t1", owner)
    assert ledger.claim("t2", [A], tenant(), share=ask()) == Claimed()


def test_the_index_itself_refuses_two_whole_claims(tmp_path: Path) -> None:
    """Whatever a later version of this program believes."""
    path = tmp_path / "ledger.sqlite"
    ledger, me = Ledger(path), Owner.of(os.getpid())
    for number, gpu in enumerate((A, B)):
        ledger.claim(f"t{number}", [gpu], me)
    with sqlite3.connect(path) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute("UPDATE claims SET gpu = 'GPU-a'")
    db.close()


def test_sums_never_exceed_the_card_whatever_comes_and_goes(ledger: Ledger) -> None:
    me, sizes = Owner.of(os.getpid()), itertools.cycle((700, 1300, 2100, 900))
    answers = []
    for number, memory_mib in zip(range(60), sizes, strict=False):
        share = replace(QUARTER, memory_mib=memory_mib, compute_milli=memory_mib // 5)
        answers.append(ledger.claim(f"t{number}", [A], me, share=ask(share)) == Claimed())
        if number % 3 == 0:
            ledger.drop(ledger.holdings()[0])
        shares = [held.share for held in ledger.holdings() if held.share]
        assert sum(share.memory_mib for share in shares) <= 4000
        assert sum(share.compute_milli for share in shares) <= 1000
    assert {True, False} == set(answers), "it was full at times"
