"""Memory limits by cgroup, over a cgroup tree and a driver that the test gives: dmem, misc and neither.

What the fake driver answers is NVIDIA's: see `tests.doubles.nvml.limits`.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.nvml_child import NvmlCalls
from isolator.shares.driver import limits
from isolator.shares.driver.limits import CgroupLimits, enable_dmem, has_dmem, limits_of, unfit
from isolator.shares.tenancy import Given, MemoryInUse, Tenancy
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.shares.share import Method, Share
from tests.unit.isolator.shares.near_nvml import NearCalls

PROGRAM = """
import sys
from pathlib import Path
from isolator.gpus.nvml_child import serve
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from tests.doubles.nvml.fake import FakeNvml
sys.exit(serve(FakeNvml(simulated_gpus(2, "NVIDIA H100 80GB HBM3", seed="limits"), Path(sys.argv[1]))))
"""
GPUS = simulated_gpus(2, "NVIDIA H100 80GB HBM3", seed="limits")
MIB = 1 << 20
MAX = (1 << 64) - 1


class Host:
    """A cgroup tree of version 2, and a driver whose state is in a file."""

    def __init__(self, path: Path, memacct: str | None) -> None:
        """`memacct`: as `FakeLimits` says; "dmem": the kernel has that controller."""
        self.tree, self._state = path / "cgroup", path / "nvml.json"
        self.cgroup = self.tree / "mesos_gpu" / "c1"
        self.cgroup.mkdir(parents=True)
        for directory in (self.tree, self.cgroup.parent):
            (directory / "cgroup.subtree_control").write_text("memory")
        (self.tree / "cgroup.controllers").write_text("memory pids" + " dmem" * (memacct == "dmem"))
        state = {"tree": str(self.tree), "limits": {}, "used": {}}
        self._state.write_text(json.dumps({**state, **({"memacct": memacct} if memacct else {})}))
        if memacct == "dmem":  # files that the kernel makes when the controller is enabled above
            (self.tree / "dmem.capacity").write_text("nvidia/0000:10:00.0/vidmem 85520809984\n")
            for directory in (self.cgroup.parent, self.cgroup):
                (directory / "dmem.min").write_text("0")
        self.calls = NearCalls(GPUS, self._state)
        self.measure = CgroupLimits(self.calls, self.tree)

    def say(self, **state: Any) -> None:
        """Change the driver's state."""
        self._state.write_text(json.dumps({**json.loads(self._state.read_text()), **state}))

    def set(self) -> dict[str, list[int]]:
        """Soft and hard limits of the task's cgroup by the card's index, MiB; of no limit: MAX."""
        rows = json.loads(self._state.read_text())["limits"]
        return {
            key.partition(" ")[0]: [soft // MIB, hard if hard == MAX else hard // MIB]
            for key, (soft, hard) in rows.items()
            if key.endswith(str(self.cgroup))
        }

    def tenancy(self, memory_mib: int = 20000, most_mib: int = 0) -> Tenancy:
        """A task with a share of both cards."""
        share = Share(250, memory_mib, most_mib or memory_mib, Method.DMEM_WINDOWS)
        return Tenancy("t1", "c1", GPUS, share, self.tree.parent, {})

    def make(self, tenancy: Tenancy) -> Given:
        """Make its limits."""
        return self.measure.make(tenancy, Ledger(self.tree.parent / "ledger.sqlite"))


@pytest.fixture(params=["dmem", "misc"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    """A host that can, in either way."""
    return Host(tmp_path, request.param)


def test_limits_are_set_on_the_tasks_own_cgroup_for_each_card(host: Host) -> None:
    assert host.make(host.tenancy()) == Given()
    assert host.set() == {"0": [0, 20000], "1": [0, 20000]}


def test_a_share_that_may_burst_has_a_soft_limit(host: Host) -> None:
    host.make(host.tenancy(20000, 30000))
    assert host.set()["0"] == [20000, 30000]
    assert limits_of(host.tenancy(20000)) == (0, 20000)


def test_the_undo_takes_both_limits_away_before_the_cgroup_goes(host: Host) -> None:
    tenancy = host.tenancy(20000, 30000)
    host.make(tenancy)
    for trace in host.measure.traces(tenancy):
        limits.undo(trace, host.calls)
    assert host.set() == {"0": [0, MAX], "1": [0, MAX]}
    if (host.cgroup / "dmem.min").exists():
        assert (host.cgroup.parent / "dmem.min").read_text() == "0", "nothing stays reserved above"


def test_soft_limit_stays_reserved_in_the_parent_cgroup_until_it_is_undone(tmp_path: Path) -> None:
    host = Host(tmp_path, "dmem")
    host.make(host.tenancy(20000, 30000))
    assert int((host.cgroup.parent / "dmem.min").read_text()) == 2 * 20000 * MIB


def test_traces_are_known_before_anything_is_made(host: Host) -> None:
    traces = host.measure.traces(host.tenancy())
    assert traces == tuple(Trace("limit", f"{gpu.id} {host.cgroup}") for gpu in GPUS)
    assert host.measure.cards(host.tenancy()) == ()
    for trace in traces:  # nothing was made: harmless
        limits.undo(trace, host.calls)
    host.cgroup.rename(host.cgroup.with_name("gone"))
    limits.undo(traces[0], NvmlCalls(command=("false",)))


def test_a_resize_sets_other_limits_and_is_refused_below_what_is_used(host: Host) -> None:
    host.make(host.tenancy())
    host.say(used={str(host.cgroup): 15000})
    ledger = Ledger(host.tree.parent / "ledger.sqlite")
    before = host.tenancy().share
    host.measure.resize(host.tenancy(15000), ledger, before)
    assert host.set()["0"] == [0, 15000]
    with pytest.raises(
        MemoryInUse, match="15000 MiB are in use, more than the 14999 MiB asked for"
    ) as refused:
        host.measure.resize(host.tenancy(14999), ledger, before)
    assert refused.value.used_mib == 15000
    assert host.set()["0"] == [0, 15000]


def test_a_limit_that_is_not_there_when_it_is_read_back_fails(host: Host) -> None:
    host.say(ignores=True)
    with pytest.raises(Unavailable, match="after they were set to"):
        host.make(host.tenancy())


@pytest.mark.parametrize(
    ("memacct", "change", "says"),
    [
        (None, {}, "the driver is older than 615"),
        ("off", {}, "the driver enforces no limits: RmMemacctMode=0"),
        ("misc", {"user": True}, "only root may"),
        ("misc", {"cards": {"0": {"mig": {"mode": 1, "made": []}}}}, "the driver enforces no limits"),
        ("misc", {"broken": "driver"}, "NVML failed: Driver Not Loaded"),
    ],
)
def test_host_without_limits_says_why(
    tmp_path: Path, memacct: str | None, change: dict[str, Any], says: str
) -> None:
    host = Host(tmp_path, memacct)
    host.say(**change)
    with pytest.raises(Unavailable, match=says):
        host.make(host.tenancy())


def test_a_cgroup_without_dmem_files_is_named(tmp_path: Path) -> None:
    host = Host(tmp_path, "dmem")
    with pytest.raises(Unavailable, match="the cgroup does not exist, or has no dmem files"):
        host.calls.ask("limit", uuids=[GPUS[0].id], cgroup=str(host.cgroup), soft_mib=0, hard_mib=1)


def in_docker(tenancy: Tenancy) -> Tenancy:
    """Put it into a container of the Docker Engine."""
    return replace(tenancy, docker=True)


def test_a_container_of_the_docker_engine_is_limited_at_its_gate_when_the_undo_is_on_record(
    host: Host,
) -> None:
    tenancy = in_docker(host.tenancy())
    assert host.measure.lacks(tenancy) == ""
    assert host.measure.traces(tenancy) == (), "its cgroup is not known yet"
    (limit,) = host.make(tenancy).at_gate
    assert host.set() == {}
    left: list[Trace] = []

    def leave(trace: Trace) -> None:
        assert host.set() == {}, "nothing is set that is not on record"
        left.append(trace)

    limit(host.cgroup, leave)
    assert left == [Trace("limit", f"{gpu.id} {host.cgroup}") for gpu in GPUS]
    assert host.set() == {"0": [0, 20000], "1": [0, 20000]}
    smaller = in_docker(host.tenancy(15000))
    host.measure.resize(smaller, Ledger(host.tree.parent / "ledger.sqlite"), tenancy.share)
    assert host.set() == {"0": [0, 15000], "1": [0, 15000]}
    for trace in left:
        limits.undo(trace, host.calls)
    assert host.set() == {"0": [0, MAX], "1": [0, MAX]}


def test_a_container_of_the_docker_engine_does_not_burst_for_nobody_could_take_it_back(host: Host) -> None:
    """When it ends its cgroup is gone, and a soft limit would stay reserved above."""
    given = host.make(in_docker(host.tenancy(20000, 30000)))
    assert "the Docker Engine removes its cgroup" in given.notes[0]
    given.at_gate[0](host.cgroup, lambda _: None)
    assert host.set()["0"] == [0, 20000]
    if (host.cgroup / "dmem.min").exists():
        assert (host.cgroup.parent / "dmem.min").read_text() == "0"


def test_a_limit_that_cannot_be_set_at_the_gate_lets_nobody_through(host: Host) -> None:
    (limit,) = host.make(in_docker(host.tenancy())).at_gate
    host.say(ignores=True)
    with pytest.raises(Unavailable, match="after they were set to"):
        limit(host.cgroup, lambda _: None)


def test_limits_are_set_and_read_by_children(tmp_path: Path) -> None:
    host = Host(tmp_path, "misc")
    calls = NvmlCalls(command=(sys.executable, "-c", PROGRAM, str(tmp_path / "nvml.json")), deadline_s=600.0)
    cgroup, uuid = str(host.cgroup), GPUS[0].id
    calls.ask("limit", uuids=[uuid], cgroup=cgroup, soft_mib=1, hard_mib=2)
    assert calls.ask("limits", uuid=uuid, cgroup=cgroup) == host.calls.ask("limits", uuid=uuid, cgroup=cgroup)
    assert host.set() == {"0": [1, 2]}


def test_a_container_without_a_gate_is_refused(host: Host) -> None:
    tenancy = replace(in_docker(host.tenancy()), own={"MESOS_GPU_CONTROL_PORTS": "off"})
    assert "with MESOS_GPU_CONTROL_PORTS=off it has no gate" in host.measure.lacks(tenancy)
    assert host.measure.lacks(replace(tenancy, docker=False)) == ""


def test_a_task_without_a_cgroup_of_version_2_does_not_start(host: Host) -> None:
    host.cgroup.rename(host.cgroup.with_name("gone"))
    with pytest.raises(Unavailable, match="the task has no cgroup"):
        host.make(host.tenancy())


def test_the_controller_is_enabled_from_the_root_to_the_leaf_without_a_gap(tmp_path: Path) -> None:
    host = Host(tmp_path, "dmem")
    enable_dmem(host.cgroup, host.tree)
    assert (host.tree / "cgroup.subtree_control").read_text() == "+dmem"
    assert (host.cgroup.parent / "cgroup.subtree_control").read_text() == "+dmem"
    assert not (host.cgroup / "cgroup.subtree_control").exists(), "processes are in it"


def test_a_kernel_without_the_controller_is_left_alone(tmp_path: Path) -> None:
    host = Host(tmp_path, "misc")
    enable_dmem(host.cgroup, host.tree)
    assert (host.tree / "cgroup.subtree_control").read_text() == "memory"


def test_cgroup_controllers_for_limits_are_detected(tmp_path: Path) -> None:
    dmem, misc = Host(tmp_path / "a", "dmem").tree, Host(tmp_path / "b", "misc").tree
    assert (has_dmem(dmem), has_dmem(misc)) == (True, False)
    assert (unfit(dmem), unfit(misc)) == ("", "")
    assert unfit(tmp_path).startswith(f"cgroup version 2 is not mounted at {tmp_path}")


@pytest.mark.parametrize(
    ("state", "deadline_s", "says"),
    [({"hang": True}, 3.0, "did not answer within 3 s"), ({"cards": []}, 60.0, "crashed")],
)
def test_a_driver_that_hangs_or_crashes_costs_a_child(
    host: Host, state: dict[str, Any], deadline_s: float, says: str
) -> None:
    host.say(**state)
    command = (sys.executable, "-c", PROGRAM, str(host.tree.parent / "nvml.json"))
    calls = NvmlCalls(command=command, deadline_s=deadline_s)
    with pytest.raises(Unavailable, match=says):
        calls.ask("limits", uuid=GPUS[0].id, cgroup=str(host.cgroup))
