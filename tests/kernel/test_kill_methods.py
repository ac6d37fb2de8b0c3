"""kill -9 of an executor at its steps beside a neighbour, as `test_kill_shares`, by the other ways to enforce a share:
MPS with NVIDIA's real daemon, memory limits by cgroup over a tree and a driver that the test gives, MIG instances that
are made for it."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolator.gpus.nvml_child import NvmlCalls
from isolator.gpus.share_claims import CardTrace
from isolator.shares.driver import instances, limits
from isolator.shares.mps import daemon as mps
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.resize import Resize
from tests.doubles.nvml.mig_tables import MIG_TABLES
from tests.hosts import GPUS
from tests.kernel.conftest import needs
from tests.kernel.mps.test_mps_tasks import PATCHED, Node
from tests.kernel.test_kill_at_every_step import EVERY, bootstrap, killed_before
from tests.kernel.test_kill_shares import REST, Card, each_step
from tests.kernel.test_shares import QUARTER, SHARED
from tests.mps_hosts import real_program

pytestmark = pytest.mark.kernel
LAUNCH = ("prepare", "fetch", "start", "undo")
LARGER, SMALLER = Resize(1, 3000, 3000, 750), Resize(1, 500, 500, 100)


def kill_in(patch: pytest.MonkeyPatch, code: str, *steps: str) -> None:
    """Have executors killed in these steps; `code` runs in each first."""
    patch.setattr("tests.hosts.executor_command", lambda: bootstrap(*steps, patch=code))


def a_directory(open_directory: Path) -> Path:
    directory = open_directory / f"method-{time.monotonic_ns()}"
    directory.mkdir()
    return directory


# --- memory limits by cgroup

DRIVER = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {root!r})
from isolator.gpus.nvml_child import serve
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from tests.doubles.nvml.fake import FakeNvml
(gpu,) = simulated_gpus(1, "NVIDIA H100 80GB HBM3", seed="killed")
sys.exit(serve(FakeNvml((replace(gpu, id={gpu!r}),), Path(sys.argv[1]))))
"""
#: In an executor. The cgroup that the driver is told of is one of the test's tree: this kernel has no such controller.
LIMITED = """
from pathlib import Path
from isolator.gpus.nvml_child import NvmlCalls
from isolator.shares import enforcing
from isolator.shares.driver import limits
from isolator.shares.files import Files
class Calls(NvmlCalls):
    def ask(self, what, **given):
        os.utime(STATE)
        said = super().ask(what, **given)
        os.utime(STATE)
        return said
class Limits(limits.CgroupLimits):
    def make(self, tenancy, ledger):
        cgroup = self._cgroup(tenancy)
        cgroup.mkdir(parents=True, exist_ok=True)
        if (cgroup.parent / "dmem.min").exists():
            (cgroup / "dmem.min").write_text("0")
        return super().make(tenancy, ledger)
calls = Calls(command=COMMAND, deadline_s=60.0)
limits.calls_of = lambda env: calls
enforcing.measures = lambda tenancy: (Limits(calls, Path(TREE)), Files())
"""
MIB, NO_LIMIT = 1 << 20, (1 << 64) - 1
LIMITS = {"dmem": Method.DMEM_WINDOWS, "misc": Method.MISC_WINDOWS}


class LimitedCard(Card):
    """A card whose driver limits memory. Shares may burst: their soft limits are reserved in the cgroups above."""

    def __init__(self, directory: Path, kind: str, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self.tree, self.state, self._kind = directory / "cgroup", directory / "nvml.json", kind
        above = self.tree / "mesos_gpu"
        above.mkdir(parents=True)
        for each in (self.tree, above):
            (each / "cgroup.subtree_control").write_text("memory")
        (self.tree / "cgroup.controllers").write_text("memory pids" + " dmem" * (kind == "dmem"))
        if kind == "dmem":
            (above / "dmem.min").write_text("0")
        self.state.write_text(json.dumps({"tree": str(self.tree), "limits": {}, "memacct": kind}))
        root = str(Path(__file__).parents[2])
        command = (sys.executable, "-c", DRIVER.format(root=root, gpu=GPUS[0]), str(self.state))
        code = LIMITED.replace("COMMAND", repr(command)).replace("TREE", repr(str(self.tree)))
        self.code = code.replace("STATE", repr(str(self.state)))
        patch.setattr(limits, "calls_of", lambda env: NvmlCalls(command=command, deadline_s=60.0))
        kill_in(patch, self.code, *LAUNCH)
        bursts = replace(QUARTER, memory_max_mib=2000, method=LIMITS[kind])
        super().__init__(directory, "off", stack, share=bursts, rest=replace(REST, method=LIMITS[kind]))

    def is_enforced_as_before(self, step: str) -> None:
        """The neighbour has its limits, and nobody else has any, also not in the cgroups above."""
        super().is_enforced_as_before(step)
        rows: dict[str, list[int]] = json.loads(self.state.read_text())["limits"]
        own = {key: row for key, row in rows.items() if key.endswith(self.neighbour.sandbox.name)}
        assert list(own.values()) == [[1000 * MIB, 2000 * MIB]], (step, rows)
        assert all(row == [0, NO_LIMIT] for key, row in rows.items() if key not in own), (step, rows)
        if self._kind == "dmem":
            assert int((self.tree / "mesos_gpu" / "dmem.min").read_text()) == 1000 * MIB, step


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.long) for kind in LIMITS])
def limited(
    open_directory: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LimitedCard]:
    with ExitStack() as stack:
        yield LimitedCard(a_directory(open_directory), str(request.param), stack, monkeypatch)


@killed_before(60)
def test_kill_leaves_no_limit_behind_and_the_neighbours_where_it_is(
    limited: LimitedCard, steps: Sequence[int]
) -> None:
    killed = each_step(limited, steps, more_than=60)
    if steps is EVERY:
        assert sum("utime in ask" in step for step in killed) >= 4, (
            "before and after a limit is set, and undone"
        )


@killed_before(9)
@pytest.mark.parametrize(
    "wish", [pytest.param(LARGER, id="larger", marks=pytest.mark.long), pytest.param(SMALLER, id="smaller")]
)
def test_kill_in_a_resize_leaves_no_limit_behind(
    limited: LimitedCard, steps: Sequence[int], wish: Resize, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_in(monkeypatch, limited.code, "resize")
    each_step(limited, steps, wish, more_than=15)


# --- MIG instances that are made for their shares

#: In an executor: the driver is a directory, in which each instance is one.
MADE = """
from pathlib import Path
from isolator.shares.driver import instances
imagined, undo = instances._imagined, instances.undo
def made(gpu, profile, start):
    Path(DRIVER, f"{profile}@{start}").mkdir(exist_ok=True)
    return imagined(gpu, profile, start)
def removed(row, calls=None):
    if (place := Path(DRIVER, row.what)).exists():
        place.rmdir()
    undo(row, calls)
instances._imagined, instances.undo = made, removed
"""
H100 = "NVIDIA H100 80GB HBM3"
MIG = Share(142, 9984, 9984, Method.MIG, instance="1g.10gb@0")
DIVIDED = replace(
    SHARED,
    gpus=tuple(
        replace(gpu, sharing=Sharing(80000, mig=True, profiles=MIG_TABLES[H100].profiles()))
        for gpu in SHARED.gpus
    ),
)


class DividedCard(Card):
    """A card that is divided as shares come and go."""

    def __init__(self, directory: Path, version: str, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self.driver = directory / "driver"
        self.driver.mkdir()
        self.code = MADE.replace("DRIVER", repr(str(self.driver)))
        kill_in(patch, self.code, *LAUNCH)
        real = instances.undo

        def undo(row: CardTrace, calls: Any = None) -> None:
            if (place := self.driver / row.what).exists():
                place.rmdir()
            real(row, calls)

        patch.setattr(instances, "undo", undo)
        super().__init__(directory, version, stack, share=MIG, rest=self.comers_share, inventory=DIVIDED)

    @property
    def comers_share(self) -> Share:
        """Another place, which only one can have: whoever follows needs that of the dead."""
        return replace(MIG, instance="1g.10gb@1")

    def is_enforced_as_before(self, step: str) -> None:
        """The neighbour's instance is there, and no other."""
        assert [path.name for path in self.driver.iterdir()] == [MIG.instance], step
        assert [row.what for row in self.ledger.cards()] == [MIG.instance], step


@pytest.fixture(params=["cgroup1", pytest.param("cgroup2", marks=pytest.mark.long)])
def divided(
    open_directory: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DividedCard]:
    needs(version := str(request.param))
    with ExitStack() as stack:
        yield DividedCard(a_directory(open_directory), version, stack, monkeypatch)


@killed_before(60)
def test_kill_leaves_no_instance_behind_and_the_neighbours_where_it_is(
    divided: DividedCard, steps: Sequence[int]
) -> None:
    killed = each_step(divided, steps, more_than=60)
    if steps is EVERY:
        assert any("mkdir in made" in step or "mkdir in mkdir" in step for step in killed), killed


def test_resize_of_an_instance_has_no_step_to_be_killed_in(
    divided: DividedCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_in(monkeypatch, divided.code, "resize")
    assert each_step(divided, EVERY, Resize(1, 19968, 19968, 285)) == []


# --- MPS of protocol 2


class MpsCard(Card):
    """A card whose shares are clients of one daemon, NVIDIA's."""

    def __init__(self, node: Node, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self.node = node
        self.code = PATCHED.format(
            program=str(node.program),
            libraries=str(node.host.libraries),
            bindings=str(node.bindings.nvml.bindings),
        )
        patch.setattr(mps, "host_of", lambda *_: node.host)
        kill_in(patch, self.code, *LAUNCH)
        share = Share(250, 20480, 20480, Method.SHIM_MPS2, "nobody")
        inventory: Inventory = replace(node.inventory)
        rest = replace(share, memory_mib=59520, memory_max_mib=59520, compute_milli=750)
        super().__init__(node.directory, "cgroup1", stack, share=share, rest=rest, inventory=inventory)
        self.pid = node.daemon()

    def is_enforced_as_before(self, step: str) -> None:
        """The daemon is the same."""
        assert self.node.daemon() == self.pid, step
        assert [row.kind for row in self.ledger.cards()] == [mps.KIND], step


@pytest.fixture
def mps_card(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MpsCard]:
    needs("cgroup1")
    program = real_program(open_directory / "driver")
    with ExitStack() as stack:
        node = Node(a_directory(open_directory), program, stack)
        stack.callback(lambda: mps.undo(node.host, str(node.domain)))
        yield MpsCard(node, stack, monkeypatch)
    assert node.clean()


@pytest.mark.long
def test_kill_leaves_the_neighbour_its_daemon(mps_card: MpsCard) -> None:
    each_step(mps_card, EVERY, more_than=60)


@pytest.mark.long
def test_kill_in_a_refused_resize_leaves_the_neighbour_its_daemon(
    mps_card: MpsCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_in(monkeypatch, mps_card.code, "resize")
    killed = each_step(mps_card, EVERY, Resize(1, 40960, 40960, 500))
    assert len(killed) > 7, "the ledger has both until the limit is refused"
