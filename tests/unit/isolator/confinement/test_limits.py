"""Limits of a task on hosts made of files: the hierarchy, the cgroup and the values of each."""

from pathlib import Path

import pytest

from isolator.confinement.limits import Amounts, Limit, TaskLimits, limits_for, pids_of, unlimited_of
from isolator.devices.cgroups import Cgroup
from mesos_gpu.errors import BadConfiguration, MesosGpuError, Unavailable

OF_JOB = Amounts(memory_mib=64, cpus=1.5)
V1 = ("pids", "memory", "cpu")


def host(root: Path, *v1: str, v2: str | None = None, given: str = "", container: str = "c1") -> Path:
    """Make the files of a host.

    Args:
        root: Directory of the host.
        v1: Controllers of version 1 that are mounted.
        v2: Controllers of version 2, separated by spaces; None if it is not mounted.
        given: Controllers of which the agent gave the container a cgroup, separated by spaces.
        container: Container that has these.

    Returns:
        The mount point of version 2.
    """
    (root / "proc/self").mkdir(parents=True)
    unified = root / "unified"
    unified.mkdir()
    lines = [f"3{i} 20 0:{i} / /c/{name} rw - cgroup cgroup rw,{name}\n" for i, name in enumerate(v1)]
    if v2 is not None:
        (unified / "cgroup.controllers").write_text(f"{v2}\n")
        lines.append(f"31 20 0:90 / {unified} rw - cgroup2 cgroup2 rw\n")
    (root / "proc/self/mountinfo").write_text("".join(lines))
    paths = {name: f"/mesos/{container}" if name in given.split() else "/" for name in v1}
    cgroups = "".join(f"{i}:{name}:{path}\n" for i, (name, path) in enumerate(paths.items(), 1))
    (root / "proc/self/cgroup").write_text(f"{cgroups}0::/\n")
    return unified


def held(limits: TaskLimits) -> dict[str, str | None]:
    """Return the directory that holds each limit, by controller."""
    return {each.controller: str(each.cgroup.path) if each.cgroup else None for each in limits.limits}


@pytest.mark.parametrize(
    ("v1", "v2", "expected"),
    [
        (V1, None, {name: f"/c/{name}/mesos_gpu/c1" for name in V1}),
        (V1, "hugetlb", {name: f"/c/{name}/mesos_gpu/c1" for name in V1}),
        ((), "cpu io memory pids", dict.fromkeys((*V1, "io"), "{unified}/mesos_gpu/c1")),
        ((), "cpu memory", {"pids": None, **dict.fromkeys(("memory", "cpu"), "{unified}/mesos_gpu/c1")}),
        (("cpu",), "io memory pids", {"cpu": "/c/cpu/mesos_gpu/c1",
                                      **dict.fromkeys(("pids", "memory", "io"), "{unified}/mesos_gpu/c1")}),
    ],
    ids=["v1", "both-by-v1", "v2", "v2-without-pids", "both-by-each"],
)  # fmt: skip
def test_each_limit_is_where_its_controller_is(
    tmp_path: Path, v1: tuple[str, ...], v2: str | None, expected: dict[str, str | None]
) -> None:
    unified = host(tmp_path, *v1, v2=v2)
    limits = limits_for("c1", OF_JOB, {}, tmp_path)
    want = {name: path and path.format(unified=unified) for name, path in expected.items()}
    assert held(limits) == want
    assert {str(each.path) for each in limits.own()} == {path for path in want.values() if path}
    assert {trace.what for trace in limits.traces()} == {path for path in want.values() if path}
    assert limits.user_processes == (4096 if want["pids"] is None else 0)


def test_limits_of_the_agent_stay_as_they_are(tmp_path: Path) -> None:
    host(tmp_path, *V1, v2="io", given="memory cpu pids")
    limits = limits_for("c1", OF_JOB, {}, tmp_path)
    memory = Cgroup("cgroup1", Path("/c/memory/mesos/c1"), own=False)
    assert limits.memory == memory
    assert [each.path for each in limits.own()] == [
        Path("/c/pids/mesos_gpu/c1"),
        tmp_path / "unified/mesos_gpu/c1",
    ]
    assert [each.settings for each in limits.limits if each.cgroup == memory] == [()]
    assert limits_for("c1", OF_JOB, {}, tmp_path, isolated=False).limits == (Limit("memory", memory),)


def test_limit_of_cpus_is_below_a_cgroup_that_the_agent_only_weighs(tmp_path: Path) -> None:
    host(tmp_path, "cpu", "pids", given="cpu")
    limits = limits_for("c1", Amounts(cpus=1.5, cpu_limit=2), {"MESOS_GPU_PIDS": "0"}, tmp_path)
    assert held(limits) == {"cpu": "/c/cpu/mesos/c1/task"}
    assert limits.limits[0].settings == (
        ("cpu.shares", "1536"),
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "200000"),
    )


@pytest.mark.parametrize(
    ("v1", "amounts", "expected"),
    [
        (V1, OF_JOB, {"pids.max": "4096", "memory.limit_in_bytes": "67108864",
                      "memory.swappiness": "0", "cpu.shares": "1536"}),
        ((), OF_JOB, {"pids.max": "4096", "memory.max": "67108864", "memory.swap.max": "0", "memory.oom.group": "1",
                      "cpu.weight": "150", "io.weight": "default 150"}),
        ((), Amounts(cpus=0.001, cpu_limit=0.001), {"pids.max": "4096", "cpu.weight": "1", "cpu.max": "1000 100000",
                                                    "io.weight": "default 1"}),
        ((), Amounts(cpus=640, cpu_limit=640.5), {"pids.max": "4096", "cpu.weight": "10000",
                                                  "cpu.max": "64050000 100000", "io.weight": "default 10000"}),
        ((), Amounts(), {"pids.max": "4096"}),
    ],
    ids=["v1", "v2", "least", "most", "nothing"],
)  # fmt: skip
def test_values_of_limits(
    tmp_path: Path, v1: tuple[str, ...], amounts: Amounts, expected: dict[str, str]
) -> None:
    host(tmp_path, *v1, v2="" if v1 else "cpu io memory pids")
    limits = limits_for("c1", amounts, {}, tmp_path)
    assert dict(setting for each in limits.limits for setting in each.settings) == expected


@pytest.mark.parametrize(("controller", "lacking"), [("memory", "memory"), ("cpu", "CPUs")])
def test_host_without_a_controller_starts_no_task_unless_its_operator_says_so(
    tmp_path: Path, controller: str, lacking: str
) -> None:
    there = [name for name in V1 if name != controller]
    host(tmp_path, *there)
    with pytest.raises(
        Unavailable, match=f"no cgroup controller {controller}, so {lacking} of a task"
    ) as error:
        limits_for("c1", OF_JOB, {}, tmp_path)
    assert f"MESOS_GPU_UNLIMITED={controller} on the agent" in error.value.remedy
    given_up = limits_for("c1", OF_JOB, {"MESOS_GPU_UNLIMITED": f" {controller},io"}, tmp_path)
    assert sorted(held(given_up)) == sorted(there)


@pytest.mark.parametrize("name", ["pids", "all", "memory;cpu"])
def test_unlimited_resource_that_is_unknown_is_refused(name: str) -> None:
    with pytest.raises(BadConfiguration, match=f"MESOS_GPU_UNLIMITED names '{name}'"):
        unlimited_of({"MESOS_GPU_UNLIMITED": name})


@pytest.mark.parametrize("said", ["many", "-1", "15", "4096.0"])
def test_pids_limit_that_is_no_number_is_refused(said: str) -> None:
    with pytest.raises(BadConfiguration, match=f"MESOS_GPU_PIDS is '{said}'"):
        pids_of({"MESOS_GPU_PIDS": said})


def test_controllers_are_handed_down_from_the_root(tmp_path: Path) -> None:
    unified = host(tmp_path, v2="cpu io memory pids")
    above = unified / "mesos_gpu"
    (above / "c1").mkdir(parents=True)
    for path in (unified, above):
        (path / "cgroup.subtree_control").write_text("cpu")
    for name in ("memory.swap.max", "memory.max"):
        (above / "c1" / name).touch()
    limits = limits_for("c1", Amounts(memory_mib=1), {"MESOS_GPU_PIDS": "0"}, tmp_path)
    limits.set_up()
    for path in (unified, above):
        assert (path / "cgroup.subtree_control").read_text() == "+memory"
    assert (above / "c1/memory.max").read_text() == "1048576"


def test_processes_in_the_root_of_a_cgroup_namespace_are_named_before_a_write(tmp_path: Path) -> None:
    unified = host(tmp_path, v2="pids memory")
    (unified / "mesos_gpu/c1").mkdir(parents=True)
    (unified / "cgroup.type").write_text("domain\n")
    (unified / "cgroup.procs").write_text("1\n")
    (unified / "cgroup.subtree_control").touch()
    with pytest.raises(MesosGpuError, match=f"processes are in {unified}, and the kernel") as error:
        limits_for("c1", Amounts(memory_mib=1), {}, tmp_path).set_up()
    assert "MESOS_GPU_PIDS=0 on the agent" in error.value.remedy
    assert (unified / "cgroup.subtree_control").read_text() == ""


def test_io_that_the_kernel_refuses_is_not_weighed(tmp_path: Path) -> None:
    unified = host(tmp_path, v2="io")
    (unified / "mesos_gpu/c1").mkdir(parents=True)
    (unified / "cgroup.subtree_control").symlink_to("/proc/version")  # a write fails with EIO or EACCES
    (unified / "mesos_gpu/c1/io.weight").touch()
    env = {"MESOS_GPU_PIDS": "0", "MESOS_GPU_UNLIMITED": "memory,cpu"}
    limits = limits_for("c1", Amounts(cpus=1.0), env, tmp_path)
    assert held(limits) == {"io": f"{unified}/mesos_gpu/c1"}
    limits.set_up()
    assert (unified / "mesos_gpu/c1/io.weight").read_text() == ""


@pytest.mark.parametrize("v1", [True, False])
def test_cgroup_of_all_tasks_has_the_most_weight(tmp_path: Path, v1: bool) -> None:
    """The host's services weigh against all tasks together."""
    above = tmp_path / "unified/mesos_gpu"
    host(tmp_path, v2="cpu io")
    (above / "c1").mkdir(parents=True)
    most = {"cpu.shares": "262144"} if v1 else {"cpu.weight": "10000", "io.weight": "default 10000"}
    for name in most:
        (above / name).touch()
        (above / "c1" / name).touch()
    limits = limits_for(
        "c1", Amounts(cpus=2.0), {"MESOS_GPU_PIDS": "0", "MESOS_GPU_UNLIMITED": "memory"}, tmp_path
    )
    if v1:
        cgroup = Cgroup("cgroup1", above / "c1", own=True)
        limits = TaskLimits(limits=(Limit("cpu", cgroup, (("cpu.shares", "2048"),)),))
    limits.set_up()
    assert {name: (above / name).read_text() for name in most} == most
    own = {"cpu.shares": "2048"} if v1 else {"cpu.weight": "200", "io.weight": "default 200"}
    assert {name: (above / "c1" / name).read_text() for name in most} == own


def test_cgroup_that_cannot_be_made_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    limit = Limit(
        "memory", Cgroup("cgroup1", tmp_path / "file/mesos_gpu/c1", own=True), (("memory.max", "1"),)
    )
    with pytest.raises(
        MesosGpuError, match=r"memory of the task cannot be limited in .*/file/mesos_gpu/c1"
    ) as error:
        TaskLimits(limits=(limit,)).set_up()
    assert "MESOS_GPU_UNLIMITED=memory" in error.value.remedy
