"""Rows of a ledger after each kind of change, of the tasks that are meant and of those beside them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.gpus.ledger import (
    DEFAULT_DIRECTORY,
    Claimed,
    Holding,
    Ledger,
    NoneFree,
    Owner,
    Refused,
    Stale,
    Trace,
    directory,
)
from isolator.gpus.share_claims import CLOSED, CardTrace, Room, ShareClaim
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.share import Method, Share

A, B, C = GpuId("GPU-a"), GpuId("GPU-b"), GpuId("GPU-c")
SHARE = Share(250, 1000, 2000, Method.SHIM_WINDOWS)
SANDBOX, ROOTFS, UID, NODES = (Trace(kind, f"of {kind}") for kind in ("sandbox", "rootfs", "uid", "nodes"))
AT = 1000.0


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "node" / "ledger.sqlite", lambda: AT)


@pytest.fixture
def owners(pids: list[int]) -> tuple[Owner, Owner, Owner]:
    """Two that live, and one that has ended."""
    first, second = map(Owner.of, pids)
    return first, second, replace(Owner.of(os.getpid()), boot_id="an earlier one")


Owners = tuple[Owner, Owner, Owner]


def asked(share: Share = SHARE, *cards: CardTrace, memory_mib: int = 4000) -> ShareClaim:
    return ShareClaim(share, dict.fromkeys((A, B, C), Room(memory_mib)), cards)


def closed(gpu: GpuId) -> CardTrace:
    return CardTrace(gpu, CLOSED, "it hangs", "state")


@pytest.mark.parametrize(
    ("gpus", "traces", "is_released"),
    [
        ((), (SANDBOX,), True),
        ((), (SANDBOX, ROOTFS, UID), True),
        ((), (), False),
        ((), (NODES,), False),
        ((), (SANDBOX, NODES), False),
        ((A,), (SANDBOX,), False),
        ((A,), (), False),
        ((A,), (NODES,), False),
    ],
)
def test_a_holding_is_released_when_its_last_traces_alone_are_left(
    owners: Owners, gpus: tuple[GpuId, ...], traces: tuple[Trace, ...], is_released: bool
) -> None:
    assert Holding("t.1", owners[0], gpus, traces=traces).is_released is is_released


@pytest.mark.parametrize("named", ["", "/srv/node"])
def test_a_ledger_is_in_the_directory_of_the_node(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("MESOS_GPU_NODE_DIR", named)
    assert directory() == Path(named or DEFAULT_DIRECTORY)
    assert Ledger().directory == Path(named or DEFAULT_DIRECTORY)
    monkeypatch.delenv("MESOS_GPU_NODE_DIR")
    assert directory() == Path(DEFAULT_DIRECTORY)


def test_a_ledger_of_the_node_is_used_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MESOS_GPU_NODE_DIR", str(tmp_path))
    Ledger().holdings()
    assert (tmp_path / "ledger.sqlite").is_file()


def test_release_of_a_task_leaves_its_last_traces_and_all_of_others(ledger: Ledger, owners: Owners) -> None:
    first, second, _ = owners
    assert ledger.claim("a.1", [A], first, container="c-a", traces=[NODES]) == Claimed()
    traces = (NODES, SANDBOX, Trace("limit", "sandbox"), UID)
    assert ledger.claim("b.1", [B, C], second, container="c-b", traces=traces) == Claimed()
    a = Holding("a.1", first, (A,), "c-a", (NODES,), AT)
    b = Holding("b.1", second, (B, C), "c-b", traces, AT)
    assert ledger.holdings() == (a, b)
    ledger.release("b.1", first, "c-b")
    ledger.release("a.1", second, "c-a")
    assert ledger.holdings() == (a, b), "of others nothing is released"
    ledger.release("b.1", second, "c-b")
    b = replace(b, gpus=(), traces=(SANDBOX, UID))
    assert ledger.holdings() == (a, b)
    assert b.is_released
    assert ledger.claim("c.1", [B], first) == Claimed()
    c = Holding("c.1", first, (B,), since=AT)
    ledger.release("a.1", first, "c-a")
    assert ledger.holdings() == (b, c)
    ledger.drop(replace(b, owner=first))
    assert ledger.holdings() == (b, c)
    ledger.drop(b)
    assert ledger.holdings() == (c,)


def test_release_takes_the_lock_of_a_container_with_it(ledger: Ledger, owners: Owners) -> None:
    for container in "c-a", "c-b":
        os.close(ledger.lock(container))
    ledger.claim("a.1", [], owners[0], container="c-a", traces=[SANDBOX])
    locks = ledger.directory / "owners"
    ledger.release("a.1", owners[0], "c-a")
    assert {path.name for path in locks.iterdir()} == {"c-a", "c-b"}
    ledger.drop(ledger.holdings()[0])
    assert {path.name for path in locks.iterdir()} == {"c-b"}
    ledger.release("b.1", owners[0], "c-b")
    ledger.release("b.1", owners[0], "c-b")
    assert list(locks.iterdir()) == []


def uid_of(uid: int) -> Trace:
    return Trace("uid", f"{uid} of the pool")


def test_a_uid_is_held_by_one_task_at_a_time(ledger: Ledger, owners: Owners) -> None:
    first, second, gone = owners

    def claim(task: str, owner: Owner, *traces: Trace, uids: tuple[int, ...] = (10, 11, 12)) -> object:
        return ledger.claim(task, [], owner, traces=traces, uids=uids, uid_trace=uid_of)

    assert claim("a.1", first, NODES) == Claimed(10)
    assert ledger.holdings()[0].traces == (uid_of(10), NODES), "undone last"
    ledger.claim("b.1", [], second, traces=[Trace("nodes", "11 of the pool"), Trace("uid", "12 of the pool")])
    third = replace(gone, boot_id=first.boot_id, pid_namespace=1)  # whether it lives cannot be seen
    assert claim("c.1", third) == Claimed(11), "another kind of trace holds no uid"
    assert claim("a.1", first) == Claimed(10), "its own is not in its way"
    assert claim("d.1", gone) == NoneFree()
    assert claim("d.1", gone, uids=()) == NoneFree()
    assert claim("d.1", gone, uids=(12, 1, 0)) == Claimed(1)
    assert [holding.task for holding in ledger.holdings()] == ["a.1", "b.1", "c.1", "d.1"]


def test_a_claim_looks_at_all_its_cards(ledger: Ledger, owners: Owners) -> None:
    first, second, gone = owners
    ledger.claim("a.1", [A], first, share=asked())
    ledger.claim("b.1", [B], first, share=asked(replace(SHARE, memory_mib=3500)))
    ledger.claim("c.1", [C], gone, share=asked(replace(SHARE, memory_mib=3500)))
    a, b, c = ledger.holdings()
    for gpus in (A, B), (B, A), (A, B, C):
        refused = ledger.claim("x.1", gpus, second, share=asked())
        assert isinstance(refused, Refused)
        assert refused.held == (b,)
        assert refused.why == "GPU-b: of its 4000 MiB of memory 3500 are held, and 1000 more are asked for"
    assert ledger.claim("x.1", [A, C], second, share=asked()) == Stale((c,))
    assert ledger.claim("x.1", [A, B, C], second) == Refused((a, b))
    assert ledger.claim("x.1", [C], second) == Stale((c,))
    assert ledger.holdings() == (a, b, c)
    assert ledger.claim("x.1", [A], second, share=asked()) == Claimed()
    assert ledger.holdings()[3:] == (Holding("x.1", second, (A,), since=AT, share=SHARE),)


def test_the_dead_beside_the_living_are_what_is_stale(ledger: Ledger, owners: Owners) -> None:
    first, second, gone = owners
    ledger.claim("a.1", [A], first, share=asked())
    ledger.claim("b.1", [A], gone, share=asked(replace(SHARE, memory_mib=2500)))
    a, b = ledger.holdings()
    assert ledger.claim("x.1", [A], second, share=asked()) == Stale((b,))
    refused = ledger.claim("x.1", [A], second, share=asked(replace(SHARE, memory_mib=3500)))
    assert isinstance(refused, Refused)
    assert refused.held == (a,)


def test_a_share_is_changed_where_it_is_and_nowhere_else(ledger: Ledger, owners: Owners) -> None:
    first, second, gone = owners
    ledger.claim("a.1", [A, B], first, share=asked())
    ledger.claim("b.1", [A], second, share=asked())
    ledger.claim("c.1", [C], first)
    a, b, c = ledger.holdings()
    larger = replace(SHARE, memory_mib=3000, memory_max_mib=3500, compute_milli=700)
    assert ledger.resize("a.1", first, asked(larger)) == Claimed()
    assert ledger.holdings() == (replace(a, share=larger), b, c)
    refused = ledger.resize("b.1", second, asked(larger))
    assert isinstance(refused, Refused)
    for task, owner in (("c.1", first), ("b.1", first), ("a.1", second), ("d.1", gone)):
        with pytest.raises(NotFound, match=f"{task} holds no share"):
            ledger.resize(task, owner, asked())
    assert ledger.holdings() == (replace(a, share=larger), b, c)


def test_traces_of_cards_are_kept_by_card_kind_and_name(ledger: Ledger) -> None:
    traces = [
        CardTrace(B, "mps", "x", "1"),
        CardTrace(A, "mps", "x"),
        CardTrace(A, "mig", "x"),
        CardTrace(A, "mps", "y"),
    ]
    assert ledger.cards() == ()
    for trace in traces:
        ledger.note(trace)
    assert ledger.cards() == tuple(traces)
    assert ledger.cards(B) == tuple(traces[:1])
    assert ledger.cards(A) == tuple(traces[1:])
    assert ledger.cards(C) == ()
    traces[1] = replace(traces[1], state="2")
    ledger.note(traces[1])
    assert ledger.cards() == tuple(traces)
    ledger.forget(replace(traces[1], state="any"))
    assert ledger.cards() == (traces[0], *traces[2:])


def test_a_card_trace_is_in_the_way_of_claims_that_do_not_want_it(ledger: Ledger, owners: Owners) -> None:
    first, second, _ = owners
    windows, other = CardTrace(A, "windows", "it", "s"), CardTrace(B, "windows", "it", "s")
    for trace in windows, other:
        ledger.note(trace)
    assert ledger.claim("x.1", [A], first) == Stale(cards=(windows,))
    assert ledger.claim("x.1", [B, A], first) == Stale(cards=(windows, other))
    assert ledger.claim("x.1", [A], first, share=asked()) == Stale(cards=(windows,))
    for wanted in replace(windows, what="else"), replace(windows, kind="else"), other:
        assert ledger.claim("x.1", [A], first, share=asked(SHARE, wanted)) == Stale(cards=(windows,))
    assert ledger.claim("y.1", [C], first) == Claimed()
    assert ledger.claim("x.1", [A], first, share=asked(SHARE, replace(windows, state="new"))) == Claimed()
    assert ledger.cards() == (windows, other), "it is taken over as it is"
    assert ledger.claim("z.1", [A], second, share=asked()) == Claimed(), "it is of a card that is shared"


@pytest.mark.parametrize("others", [(), (C,)])
def test_a_closed_card_takes_no_share_and_others_do(
    ledger: Ledger, owners: Owners, others: tuple[GpuId, ...]
) -> None:
    first, second, _ = owners
    ledger.claim("a.1", [A, B, *others], first, share=asked())
    ledger.note(CardTrace(A, "windows", "it"))
    for gpu in others:
        ledger.note(closed(gpu))
    assert ledger.claim("b.1", [A], second, share=asked()) == Claimed()
    ledger.note(closed(B))
    assert ledger.claim("b.1", [A], second, share=asked()) == Claimed()
    refused = Refused((), "GPU-b takes no more shares: it hangs")
    assert ledger.claim("c.1", [B], second, share=asked()) == refused
    assert ledger.claim("c.1", [A, B], second, share=asked()) == refused


def test_a_ledger_that_two_make_at_once_is_the_winners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owners: Owners
) -> None:
    path, link = tmp_path / "ledger.sqlite", os.link

    def late(part: Path, name: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        Ledger(path).claim("winner", [A], owners[0])
        link(part, name)

    monkeypatch.setattr(os, "link", late)
    assert [holding.task for holding in Ledger(path).holdings()] == ["winner"]
    assert not list(tmp_path.glob(".*")), "no part of a ledger stays"
