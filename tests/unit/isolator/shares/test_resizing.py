"""A running share becomes larger or smaller: in the ledger, in its limits, in its neighbours' windows; or nowhere."""

import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Ledger, Owner
from isolator.shares import enforcing as enforcing_module
from isolator.shares.enforcing import Enforcing
from isolator.shares.files import Files
from isolator.shares.resizing import answer_to
from isolator.shares.shim.region import MIB, Region, region_of
from isolator.shares.tenancy import Given, Measure, Tenancy
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer
from mesos_gpu.wire.mesos.resize import decode_answer, encode_request
from tests.unit.isolator.shares.shim.test_region import process, slot, write_usage

A = GpuId("GPU-a")
CARD = Gpu(A, "sim", 4000, 0, "", health=Health.OK, sharing=Sharing(4000))
QUARTER = Share(250, 1000, 1000, Method.SHIM_WINDOWS)


class Tenant:
    """A task with a share of the card, made."""

    def __init__(self, ledger: Ledger, task: str, share: Share = QUARTER) -> None:
        self.ledger, self.task, self.owner = ledger, task, Owner.of(os.getpid())
        tenancy = Tenancy(task, f"c-{task}", (CARD,), share, ledger.directory, {}, simulated=True)
        self.enforcing = Enforcing(tenancy, ledger, 1000)
        with self.enforcing.turn():
            claim = self.enforcing.claim()
            traces = self.enforcing.traces()
            assert (
                ledger.claim(task, [A], self.owner, container=f"c-{task}", traces=traces, share=claim)
                == Claimed()
            )
            self.enforcing.make((), None)

    @property
    def region(self) -> Region:
        return region_of(self.ledger.directory, TaskId(self.task))

    def limits(self) -> tuple[int, int]:
        """Read its memory in MiB, and its window in thousandths of the period."""
        (card,) = self.region.limits([A])
        assert card.window is not None
        return card.memory_bytes // MIB, card.window.length_us * 1000 // card.window.period_us

    def held(self) -> Share | None:
        return next(h.share for h in self.ledger.holdings() if h.task == self.task)

    def resize(self, number: int, memory_mib: int, compute_milli: int) -> ResizeAnswer:
        request = encode_request(Resize(number, memory_mib, memory_mib, compute_milli))
        answer = answer_to(request, self.enforcing, self.owner)
        assert answer is not None
        resized = decode_answer(answer.data)
        assert resized is not None
        assert (resized.refused or "resized") in answer.words
        return resized

    @contextmanager
    def uses(self, mib: int) -> Iterator[None]:
        """Have it seem that a process of it, this one, holds so much."""
        write_usage(self.region, slot(0), process(os.getpid(), mib * MIB))
        fd = os.open(self.region.usage_path, os.O_RDWR)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, 1, 0))
            yield
        finally:
            os.close(fd)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "node" / "ledger.sqlite")


def test_a_share_grows_and_its_neighbours_windows_with_it(ledger: Ledger) -> None:
    one, other = Tenant(ledger, "one"), Tenant(ledger, "other")
    assert one.resize(1, 3000, 750) == ResizeAnswer(1, 3000, 3000, 750)
    assert one.held() == replace(QUARTER, memory_mib=3000, memory_max_mib=3000, compute_milli=750)
    assert one.limits() == (3000, 750)
    assert other.limits() == (1000, 250)


def test_resize_to_the_present_share_changes_nothing(ledger: Ledger) -> None:
    one = Tenant(ledger, "one")
    before = one.limits()
    with one.uses(1500):
        assert one.resize(0, 500, 100) == ResizeAnswer(0, 1000, 1000, 250)
    assert (one.held(), one.limits()) == (QUARTER, before)
    done = one.resize(1, 2000, 500)
    after = one.held(), one.limits()
    assert one.resize(0, 1000, 250) == done == ResizeAnswer(1, 2000, 2000, 500)
    assert (one.held(), one.limits()) == after != (QUARTER, before)


def test_a_share_shrinks_and_leaves_room(ledger: Ledger) -> None:
    one = Tenant(ledger, "one", replace(QUARTER, memory_mib=4000, memory_max_mib=4000, compute_milli=1000))
    with one.uses(500):
        assert one.resize(1, 500, 100) == ResizeAnswer(1, 500, 500, 100)
    assert one.limits()[0] == 500
    other = Tenant(ledger, "other", replace(QUARTER, memory_mib=3500, memory_max_mib=3500, compute_milli=900))
    assert (one.limits()[1], other.limits()[1]) == (100, 900)


def test_resize_below_the_used_memory_is_refused_with_the_figure(ledger: Ledger) -> None:
    one = Tenant(ledger, "one")
    before = one.limits()
    with one.uses(700):
        refused = one.resize(1, 699, 300)
        assert refused == ResizeAnswer(
            1, 1000, 1000, 250, "700 MiB are in use, more than the 699 MiB asked for", 700
        )
        assert one.held() == QUARTER
        assert one.limits() == before
        assert one.resize(2, 700, 300) == ResizeAnswer(2, 700, 700, 300)


def test_resize_that_does_not_fit_is_refused(ledger: Ledger) -> None:
    one, other = Tenant(ledger, "one"), Tenant(ledger, "other")
    refused = one.resize(1, 3001, 250)
    assert refused.refused == "GPU-a: of its 4000 MiB of memory 1000 are held, and 3001 more are asked for"
    assert (refused.memory_mib, refused.used_mib, refused.restart) == (1000, None, False)
    assert one.held() == other.held() == QUARTER
    assert one.limits()[0] == 1000


def test_resize_takes_more_memory_and_less_compute_at_once(ledger: Ledger) -> None:
    """More memory and less compute, in one wish."""
    one = Tenant(ledger, "one")
    assert one.resize(1, 2000, 100) == ResizeAnswer(1, 2000, 2000, 100)
    assert one.held() == replace(QUARTER, memory_mib=2000, memory_max_mib=2000, compute_milli=100)


def test_resize_messages_that_are_repeated_or_late_are_harmless(ledger: Ledger) -> None:
    one = Tenant(ledger, "one")
    first = one.resize(1, 2000, 500)
    assert one.resize(1, 2000, 500) == first, "asked again, answered again"
    second = one.resize(2, 500, 100)
    assert one.resize(1, 2000, 500) == second, "a late one is answered with what is"
    held = one.held()
    assert held is not None
    assert (held.memory_mib, held.compute_milli) == (500, 100)
    with one.uses(600):
        refused = one.resize(3, 400, 100)
    assert refused.refused
    assert one.resize(3, 400, 100) == refused, "what was refused is not done behind the scheduler's back"


@pytest.mark.parametrize(
    "data",
    [
        b'{"resize": {}}',
        b'{"resize": 5}',
        b'{"resize": {"number": 1, "memory_mib": "x"}}',
        b'"resize"',
        b"\xff",
    ],
)
def test_resize_that_cannot_be_decoded_changes_nothing(ledger: Ledger, data: bytes) -> None:
    one = Tenant(ledger, "one")
    assert answer_to(data, one.enforcing, one.owner) is None
    assert one.held() == QUARTER


@pytest.mark.parametrize(("memory_mib", "compute_milli"), [(0, 100), (100, 0)])
def test_resize_to_nothing_is_refused(ledger: Ledger, memory_mib: int, compute_milli: int) -> None:
    one = Tenant(ledger, "one")
    assert "are not a valid share" in one.resize(1, memory_mib, compute_milli).refused
    assert one.held() == QUARTER


def test_a_task_without_a_share_says_so() -> None:
    answer = answer_to(encode_request(Resize(4, 1, 1, 1)), None, Owner.of(os.getpid()))
    assert answer is not None
    resized = decode_answer(answer.data)
    assert resized == ResizeAnswer(4, 0, 0, 0, "it has no share of a GPU")


def test_a_mig_instance_stays_as_it_is_and_a_restart_is_offered(ledger: Ledger) -> None:
    one = Tenant(ledger, "one", replace(QUARTER, method=Method.MIG, instance="MIG-1"))
    refused = one.resize(1, 2000, 250)
    assert (refused.refused, refused.restart) == ("its share is a MIG instance", True)


def test_a_limit_that_cannot_be_set_takes_the_others_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Files):
        def traces(self, tenancy: Tenancy) -> tuple[()]:
            return ()

        def make(self, tenancy: Tenancy, ledger: Ledger) -> Given:
            return Given()

        def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
            raise Unavailable("the driver does not answer", remedy="wait")

    real = enforcing_module.measures

    def measures(tenancy: Tenancy) -> Sequence[Measure]:
        return (*real(tenancy), Broken())

    monkeypatch.setattr(enforcing_module, "measures", measures)
    one = Tenant(ledger, "one")
    refused = one.resize(1, 3000, 750)
    assert (refused.refused, refused.restart) == ("the driver does not answer", False)
    assert one.held() == QUARTER
    assert one.limits()[0] == 1000


@pytest.mark.parametrize("left", ["nothing", "a directory", "a part"])
def test_a_task_that_is_being_made_or_removed_closes_no_card(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """The files come and go beside its claim: a neighbour may plan at any moment between."""
    one, other = Tenant(ledger, "one"), Tenant(ledger, "other")
    one.region.remove()
    if left == "a directory":
        one.region.path.mkdir()
    elif left == "a part":
        with monkeypatch.context() as patch:
            patch.delattr(Path, "rename")  # it dies there
            with pytest.raises(AttributeError):
                one.region.create(())
        assert len(list(one.region.path.iterdir())) == 2
    with other.enforcing.turn():
        other.enforcing.plan()
    assert [row.kind for row in ledger.cards()] == ["windows"]
    assert other.resize(1, 2000, 500).refused == ""
    one.region.remove()
    assert not one.region.path.exists()


def test_a_measure_that_fails_half_done_is_set_back(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as limits of several cards, of which one is refused."""
    now: list[int] = []

    class Half(Files):
        def resize(self, tenancy: Tenancy, ledger: Ledger, before: Share) -> None:
            now.append(tenancy.share.memory_mib)
            if tenancy.share.memory_mib != QUARTER.memory_mib:
                raise Unavailable("the driver refused the second card", remedy="wait")

    monkeypatch.setattr(enforcing_module, "measures", lambda _: (Files(), Half()))
    one = Tenant(ledger, "one")
    assert one.resize(1, 3000, 750).refused == "the driver refused the second card"
    assert (now, one.limits()[0]) == ([3000, 1000], 1000)


def test_an_answer_says_what_the_task_has_also_if_what_follows_fails(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Tenant(ledger, "one")
    holds: list[Share] = []

    def hold(owner: Owner, share: Share) -> Claimed:
        holds.append(share)
        if len(holds) == 2:
            raise Unavailable("the disk is full", remedy="free some space")
        return Claimed()

    monkeypatch.setattr(one.enforcing, "hold", hold)
    answer = one.resize(1, 500, 100)
    assert (answer.refused, answer.memory_mib, answer.compute_milli) == ("the disk is full", 500, 100)
    assert one.limits()[0] == 500


def test_a_damaged_file_of_limits_closes_the_card_and_the_others_run_on(ledger: Ledger) -> None:
    one, other = Tenant(ledger, "one"), Tenant(ledger, "other")
    one.region.limits_path.write_bytes(b"x" * 40)
    third = Tenancy("t3", "c-3", (CARD,), QUARTER, ledger.directory, {}, simulated=True)
    before = other.limits()
    late = Enforcing(third, ledger, 1000)
    with late.turn():
        assert ledger.claim("t3", [A], one.owner, share=late.claim()) == Claimed()
        late.make((), None)
    late.let_go(one.owner)
    refused = ledger.claim("t4", [A], one.owner, share=late.claim())
    assert "takes no more shares" in getattr(refused, "why", "")
    assert "limits is not a valid file of limits" in getattr(refused, "why", "")
    assert other.limits() == before
