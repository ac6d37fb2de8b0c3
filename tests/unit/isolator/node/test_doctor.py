"""The doctor: on hosts made of files, and on this machine."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from isolator.gpus.ledger import Claimed, Ledger, Owner, Trace
from isolator.gpus.share_claims import CLOSED, CardTrace, Room, ShareClaim
from isolator.node import doctor, task_ports
from isolator.node.doctor import diagnose
from isolator.node.findings import Finding, Host, Level
from isolator.shares.shim.region import CardLimits, region_of
from mesos_gpu.cli import main
from mesos_gpu.errors import Unavailable
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.model.shares.share import Method, Share
from tests.doubles.builders import gpu
from tests.hosts import driver_volume

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mknod")
PROC_DEVICES = (
    "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-caps\n511 nvidia-uvm\n\nBlock devices:\n195 sd\n"
)
OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version: 12.2\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build  (a@b)\n"
MOUNTS = (
    "30 20 0:1 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
    "31 20 0:2 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
NODES = (("nvidiactl", 195, 255), ("nvidia-uvm", 511, 0), ("nvidia-uvm-tools", 511, 1), ("nvidia1", 195, 1))


class Probe:
    """Answers with what it was given; an exception is raised."""

    def __init__(self, answer: Inventory | Exception) -> None:
        self.answer = answer

    def survey(self) -> Survey:
        if isinstance(self.answer, Exception):
            raise self.answer
        inventory = self.answer
        readings = (Reading(gpu, reset_required=gpu.reason) for gpu in inventory.gpus)
        return Survey(tuple(readings), inventory.source, inventory.driver_version, inventory.cuda_version)

    def changed(self) -> bool:
        return False

    def reset(self, gpu_id: GpuId) -> str:
        raise AssertionError(f"a doctor resets nothing, not {gpu_id}")

    def close(self) -> None:
        self.closed = True


def nvml(*gpus: Gpu) -> Inventory:
    return Inventory(gpus or (gpu("GPU-1"),), "nvml", "535.183.01", "12.2")


@dataclass
class Scene:
    """A GPU host as files, in which all is well."""

    root: Path
    volumes: Path  # driver volumes, of which it has copies
    answer: Inventory | Exception = field(default_factory=nvml)
    env: dict[str, str] = field(default_factory=dict)
    volume: Path = field(init=False)

    def __post_init__(self) -> None:
        self.env.setdefault("MESOS_GPU_USER_POOL", "61000-61009")  # each name is looked up
        self.env.setdefault("MESOS_GPU_AGENT", f"127.0.0.1:{free_port()}")
        self.file("proc/devices", PROC_DEVICES)
        self.file("proc/self/mountinfo", MOUNTS)
        self.file("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n")
        self.file("proc/driver/nvidia/version", OLD)
        self.file("proc/driver/nvidia/gpus/0000:01:00.0/information", "GPU UUID: GPU-1\nDevice Minor: 1\n")
        self.file("proc/sys/kernel/yama/ptrace_scope", "1\n")
        for name in ("symlinks", "hardlinks", "fifos", "regular"):
            self.file(f"proc/sys/fs/protected_{name}", "1\n")
        self.file("proc/sys/user/max_user_namespaces", "0\n")
        self.file("etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        self.file("etc/ld.so.cache", "glibc-ld.so.cache1.1\0libcuda.so.1\0/usr/lib/libcuda.so.1\0")
        store = self.root / "var/lib/mesos/volumes"
        shutil.copytree(self.volumes, store, symlinks=True)
        (self.volume,) = store.joinpath("builds").iterdir()
        if os.geteuid() == 0:
            for node in NODES:
                self.node(*node)

    @property
    def directory(self) -> Path:
        return self.root / "node"

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.directory / "ledger.sqlite")

    def file(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def node(self, name: str, major: int, minor: int) -> None:
        path = self.root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(major, minor))

    def findings(self, check: str) -> list[Finding]:
        return [
            f for f in diagnose(Probe(self.answer), self.directory, self.env, self.root) if f.check == check
        ]

    def one(self, check: str, level: Level, text: str) -> Finding:
        """The one finding of that check."""
        findings = self.findings(check)
        assert [f.level for f in findings] == [level], findings
        assert text in findings[0].text
        assert bool(findings[0].remedy) == (level is not Level.OK), "a remedy, where one is needed"
        return findings[0]


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one volume, which takes longer to build than all else of a scene."""
    store = tmp_path_factory.mktemp("volumes") / "store"
    driver_volume(store, "535.183.01")
    return store


@pytest.fixture
def scene(tmp_path: Path, volumes: Path) -> Scene:
    return Scene(tmp_path / "root", volumes)


@root_only
def test_doctor_finds_no_fault_on_a_good_host(scene: Scene) -> None:
    findings = diagnose(Probe(scene.answer), scene.directory, scene.env, scene.root)
    assert {f.check for f in findings if f.level is not Level.OK} == {"agent"}, findings
    of_the_kernel = {"namespaces", "own code", "ports", "port proof", "limits", "shares"}
    assert {f.check for f in findings} >= set(doctor.CHECKS) - of_the_kernel


@pytest.mark.parametrize(("text", "version"), [(OLD, "535.183.01"), (OPEN, "575.57.08"), ("", None)])
def test_the_version_is_that_of_the_loaded_driver(scene: Scene, text: str, version: str | None) -> None:
    scene.file("proc/driver/nvidia/version", text)
    host = Host(scene.directory, nvml(), {}, scene.root)
    assert host.driver_version() == version


def test_doctor_without_a_driver_checks_nothing_of_it(scene: Scene) -> None:
    shutil.rmtree(scene.root / "proc/driver")
    scene.file("proc/devices", "Character devices:\n  1 mem\n")
    scene.answer = Inventory()
    scene.one("driver", Level.WARN, "no NVIDIA driver is loaded")
    for check in ("libraries", "volume", "devices", "gpu users"):
        assert scene.findings(check) == []


def test_doctor_finds_half_a_driver(scene: Scene) -> None:
    shutil.rmtree(scene.root / "proc/driver")
    scene.one("driver", Level.WARN, "no /proc/driver/nvidia/version")


def test_simulated_gpus_need_no_driver(scene: Scene) -> None:
    scene.answer = Inventory((gpu("GPU-1"),), "simulated")
    scene.one("driver", Level.OK, "1 simulated GPUs")
    assert scene.findings("nvml") == []


def test_doctor_reports_nvml_that_fails(scene: Scene) -> None:
    scene.answer = Unavailable("NVML failed: Driver/library version mismatch", remedy="reboot")
    assert scene.one("nvml", Level.FAIL, "version mismatch").remedy == "reboot"
    scene.one("driver", Level.OK, "535.183.01")


def test_doctor_reports_cards_that_nvml_misses(scene: Scene) -> None:
    scene.answer = Inventory()
    scene.one("nvml", Level.FAIL, "finds no GPU, the driver has 1")
    scene.answer = nvml()
    scene.file("proc/driver/nvidia/gpus/0000:02:00.0/information", "")
    scene.one("nvml", Level.WARN, "sees 1 of 2 cards")


def test_a_sick_gpu_is_a_warning(scene: Scene) -> None:
    sick = Gpu(GpuId("GPU-1"), "T4", 1, 1, "", health=Health.SICK, reason="XID 79")
    scene.answer = nvml(sick)
    scene.one("nvml", Level.WARN, "GPU-1 is sick: XID 79")


def test_libraries_must_be_in_the_linkers_cache(scene: Scene) -> None:
    scene.one("libraries", Level.OK, "libcuda.so.1")
    (scene.root / "etc/ld.so.cache").unlink()
    scene.one("libraries", Level.WARN, "not in the linker's cache")


def test_a_driver_volume_must_be_there_and_whole(scene: Scene) -> None:
    scene.one("volume", Level.OK, "nvidia_535.183.01, ")
    (scene.volume / "bin/nvidia-smi").unlink()
    scene.one("volume", Level.FAIL, "has changed since it was built: bin/nvidia-smi is missing")
    (scene.volume / "volume.json").write_text("{}")
    scene.one("volume", Level.FAIL, "cannot be read")
    shutil.rmtree(scene.volume)
    scene.one("volume", Level.WARN, "nvidia_535.183.01 does not exist")


@root_only
def test_device_nodes_must_have_the_drivers_numbers(scene: Scene) -> None:
    scene.one("devices", Level.OK, "4 nodes")
    scene.node("nvidia1", 195, 2)
    wrong = scene.one("devices", Level.FAIL, "/dev/nvidia1 has numbers 195:2, the driver's are 195:1")
    assert "nvidia-modprobe" in wrong.remedy
    (scene.root / "dev/nvidia1").unlink()
    scene.file("dev/nvidia1", "")
    scene.one("devices", Level.FAIL, "/dev/nvidia1 is not a character device")
    (scene.root / "dev/nvidia1").unlink()
    missing = scene.findings("devices")
    assert [f.level for f in missing] == [Level.WARN, Level.OK]
    assert "missing: /dev/nvidia1" in missing[0].text


@root_only
def test_doctor_reports_minors_that_disagree(scene: Scene) -> None:
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    scene.answer = nvml(Gpu(GpuId(uuid), "T4", 1, 1, "", health=Health.OK))
    scene.file("proc/driver/nvidia/gpus/0000:01:00.0/information", f"GPU UUID: {uuid}\nDevice Minor: 3\n")
    assert f"{uuid} is minor 1 for NVML and 3 for the driver" in [f.text for f in scene.findings("devices")]


@root_only
@pytest.mark.parametrize(("tool", "level"), [(True, Level.WARN), (False, Level.FAIL)])
def test_without_uvm_the_host_is_unfit_or_warned_of(scene: Scene, tool: bool, level: Level) -> None:
    scene.file("proc/devices", PROC_DEVICES.replace("511 nvidia-uvm\n", ""))
    if tool:
        scene.file("usr/bin/nvidia-modprobe", "")
    findings = [f for f in scene.findings("devices") if f.level is not Level.OK]
    assert [(f.level, f.text) for f in findings] == [(level, "the kernel module nvidia-uvm is not loaded")]


def test_without_cgroups_isolation_fails(scene: Scene) -> None:
    scene.one("isolation", Level.OK, "cgroup1 at /sys/fs/cgroup/devices, cgroup2 at /sys/fs/cgroup/unified")
    scene.file("proc/self/mountinfo", "")
    scene.one("isolation", Level.FAIL, "no cgroups that control devices")


def test_privileges_must_be_enough_for_the_isolation(scene: Scene) -> None:
    scene.file("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000000fff7dfffff\n")
    scene.one("privileges", Level.FAIL, "user id 0, without CAP_SYS_ADMIN, CAP_MKNOD")
    scene.file("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t0000007fffffffff\n")
    scene.one("privileges", Level.OK, "root")
    scene.env["MESOS_GPU_ISOLATION"] = "cgroup2"
    scene.one("privileges", Level.FAIL, "without CAP_BPF")
    scene.file("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0\n")
    scene.one("privileges", Level.FAIL, "user id 1000")


def test_a_host_without_nobody_is_warned_of(scene: Scene) -> None:
    scene.file("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    scene.one("users", Level.WARN, "the user nobody does not exist")


def test_the_ledger_is_counted_and_not_made(scene: Scene) -> None:
    scene.one("ledger", Level.OK, "none yet")
    assert not scene.directory.exists(), "to look makes nothing"
    claimed = scene.ledger.claim("job.1", [GpuId("GPU-1"), GpuId("GPU-2")], Owner.of(os.getpid()))
    assert isinstance(claimed, Claimed)
    scene.one("ledger", Level.OK, "1 tasks hold 2 GPUs")


def test_shares_are_counted_and_a_card_that_takes_no_more_is_named(scene: Scene) -> None:
    gpu = GpuId("GPU-1")
    claim = ShareClaim(Share(250, 1000, 1000, Method.SHIM_WINDOWS), {gpu: Room(4000)})
    for task in ("job.1", "job.2"):
        assert scene.ledger.claim(task, [gpu], Owner.of(os.getpid()), share=claim) == Claimed()
    scene.one("ledger", Level.OK, "2 tasks hold 0 GPUs, and 2 shares of GPUs")
    scene.ledger.note(CardTrace(gpu, CLOSED, "its daemon hangs"))
    assert [each.text for each in scene.findings("ledger") if each.level is Level.WARN] == [
        "GPU-1 takes no more shares: its daemon hangs"
    ]


def test_files_of_a_share_that_nobody_has_are_leftovers(scene: Scene) -> None:
    region = region_of(scene.directory, TaskId("job.1"))
    region.create([CardLimits(GpuId("GPU-1"), 5)])
    scene.ledger.claim("job.1", [], Owner.of(os.getpid()), traces=[Trace("share", str(region.path))])
    scene.one("leftovers", Level.OK, "no remains of dead tasks")
    scene.ledger.release("job.1", Owner.of(os.getpid()))
    assert scene.one("leftovers", Level.WARN, "belongs to no task").remedy.startswith(f"rm -r {region.path}")


def test_a_damaged_ledger_fails_with_a_remedy(scene: Scene) -> None:
    scene.file("node/ledger.sqlite", "no ledger at all" * 500)
    assert "end this host's GPU tasks" in scene.one("ledger", Level.FAIL, "is damaged").remedy


def test_doctor_reports_leftovers_of_a_dead_executor(scene: Scene) -> None:
    process = subprocess.Popen(["sleep", "60"])
    owner = Owner.of(process.pid)
    nodes = Trace("nodes", "/dev/mesos_gpu/c-1")
    scene.ledger.claim("job.1", [GpuId("GPU-1")], owner, container="c-1", traces=[nodes])
    (scene.root / "dev/mesos_gpu/c-1").mkdir(parents=True)
    try:
        scene.one("leftovers", Level.OK, "no remains of dead tasks")
    finally:
        process.kill()
        process.wait()
    scene.one("leftovers", Level.WARN, "the executor of job.1 is dead, but the task still holds GPU-1")


def test_doctor_reports_leftovers_without_a_record(scene: Scene) -> None:
    for path in (
        "dev/mesos_gpu/c-1",
        "sys/fs/cgroup/devices/mesos_gpu/c-1",
        "sys/fs/cgroup/unified/mesos_gpu/c-2",
    ):
        (scene.root / path).mkdir(parents=True)
    findings = scene.findings("leftovers")
    devices, unified = "/sys/fs/cgroup/devices/mesos_gpu/c-1", "/sys/fs/cgroup/unified/mesos_gpu/c-2"
    paths = ("/dev/mesos_gpu/c-1", devices, unified)
    assert [f.text for f in findings] == [
        f"{path} belongs to no task recorded in {scene.directory}" for path in paths
    ]
    assert {f.level for f in findings} == {Level.WARN}
    assert [f.remedy.partition(";")[0] for f in findings] == [
        "rm -r /dev/mesos_gpu/c-1",
        f"end what is in it, then: rmdir {devices}",
        f"end what is in it, then: rmdir {unified}",
    ]


def test_a_living_task_of_another_node_directory_is_no_leftover(scene: Scene) -> None:
    """A task's nodes and cgroups bear the name of its container, and so does the cgroup of its processes."""
    for path in ("dev/mesos_gpu/c-1", "sys/fs/cgroup/devices/mesos_gpu/c-1", "dev/mesos_gpu/c-2", "proc/77"):
        (scene.root / path).mkdir(parents=True)
    (scene.root / "proc/77/cgroup").write_text("5:devices:/mesos_gpu/c-1\n0::/user.slice\n")
    assert [f.text for f in scene.findings("leftovers")] == [
        f"/dev/mesos_gpu/c-2 belongs to no task recorded in {scene.directory}"
    ]


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The pid of a process that is no child of ours: children of the doctor are its own NVML."""
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60'], stdout=2); print(p.pid)"
    pid = int(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout)
    yield pid
    os.kill(pid, 9)


@root_only
def test_doctor_reports_strangers_on_a_gpu(scene: Scene, sleeper: int) -> None:
    descriptors = scene.root / f"proc/{sleeper}/fd"
    descriptors.mkdir(parents=True)
    (descriptors / "0").symlink_to("/dev/null")
    (descriptors / "3").symlink_to(scene.root / "dev/nvidiactl")
    scene.one("gpu users", Level.OK, "0 GPUs in use")
    (descriptors / "4").symlink_to(scene.root / "dev/nvidia1")
    scene.one("gpu users", Level.WARN, f"GPU-1: pids {sleeper}")
    scene.ledger.claim("job.1", [GpuId("GPU-2")], Owner.of(os.getpid()))
    scene.one("gpu users", Level.WARN, f"GPU-1: pid {sleeper} (sleep) of root")
    scene.ledger.claim("job.2", [GpuId("GPU-1")], Owner.of(sleeper))
    scene.one("gpu users", Level.OK, "1 GPUs in use, only by tasks of the platform")


def test_docker_is_looked_for_where_the_setting_says(scene: Scene) -> None:
    scene.one("docker", Level.OK, "no Docker Engine")
    scene.env["MESOS_GPU_DOCKER_SOCKET"] = "/run/engine.sock"
    scene.file("run/engine.sock", "")
    scene.one("docker", Level.WARN, "Docker")


def test_named_agent_that_does_not_answer(scene: Scene) -> None:
    scene.one("agent", Level.FAIL, "does not answer")


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ({}, []),
        ({"isolation": "cgroups/cpu"}, [(Level.OK, "the executors run images themselves")]),
        ({"isolation": "cgroups/devices"}, [(Level.WARN, "without docker/runtime, filesystem/linux:")]),
        (
            {"isolation": "filesystem/linux,docker/runtime"},
            [
                (Level.WARN, "an image shares System V's shared memory"),
            ],
        ),
        ({"image_providers": ""}, [(Level.WARN, "without --image_providers=docker:")]),
        (
            {"isolation": "filesystem/linux,docker/runtime,cgroups/pids,namespaces/ipc,gpu/nvidia"},
            [(Level.FAIL, "the isolator gpu/nvidia chooses cards")],
        ),
        ({"resources": "cpus:4"}, [(Level.WARN, "names no gpus")]),
        ({"default_role": "*"}, [(Level.WARN, "its GPUs have no role")]),
        ({"default_role": "*", "resources": "gpus(research):4"}, []),
        ({"default_role": "*", "resources": "gpus(*):4"}, [(Level.WARN, "its GPUs have no role")]),
    ],
)
def test_flags_of_an_agent_that_spoil_gpu_tasks_are_named(
    flags: dict[str, str], wanted: list[tuple[Level, str]]
) -> None:
    good = {
        "isolation": "cgroups/devices,cgroups/pids,filesystem/linux,docker/runtime,namespaces/ipc",
        "image_providers": "docker",
        "resources": "cpus:4;gpus:4",
        "default_role": "gpu",
    }
    problems = list(doctor._flag_problems(good | flags))
    assert [f.level for f in problems] == [level for level, _ in wanted]
    assert all(text in f.text for f, (_, text) in zip(problems, wanted, strict=True))


@pytest.mark.parametrize(
    ("env", "flags", "level"),
    [
        ({"MESOS_GPU_CONTROL_PORTS": "off"}, {"authenticate_http_readwrite": "false"}, Level.FAIL),
        ({"MESOS_GPU_CONTROL_PORTS": "off"}, {"authenticate_http_readwrite": "true"}, Level.WARN),
        ({"MESOS_GPU_CONTROL_PORTS": "off"}, None, Level.WARN),
        ({"MESOS_GPU_ISOLATION": "off"}, {}, Level.FAIL),
    ],
)
def test_doctor_names_an_agent_that_a_task_could_command(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    env: dict[str, str],
    flags: dict[str, str] | None,
    level: Level,
) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _: flags)
    scene.env.update(env)
    scene.one("ports", level, "tasks reach the ports that command the cluster")


AGENT_FLAGS = {
    "work_dir": "/var/lib/mesos",
    "resources": "gpus(gpu):1",
    "isolation": "cgroups/pids,docker/runtime,filesystem/linux,namespaces/ipc",
    "image_providers": "docker",
}


def test_files_in_memory_that_are_not_executed(scene: Scene) -> None:
    scene.file("proc/sys/vm/memfd_noexec", "2\n")
    scene.one("commands", Level.WARN, "tasks without an image have no commands")


@root_only
def test_work_dir_without_access_control_lists(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _: {**AGENT_FLAGS, "work_dir": "/srv/mesos"})
    work_dir = scene.root / "srv/mesos"
    work_dir.mkdir(parents=True)
    scene.one("agent", Level.OK, "flags are right")
    subprocess.run(["mount", "-t", "ramfs", "ramfs", str(work_dir)], check=True)
    try:
        finding = scene.one("agent", Level.FAIL, "the file system of /srv/mesos has no access control lists")
    finally:
        subprocess.run(["umount", str(work_dir)], check=True)
    assert finding.remedy == "put the agent's work_dir on ext4, xfs or btrfs"


@pytest.mark.parametrize(
    ("above", "mode", "level"),
    [
        (0o755, 0o755, Level.WARN),
        (0o711, 0o701, Level.WARN),
        (0o755, 0o700, Level.OK),
        (0o700, 0o755, Level.OK),
    ],
)
def test_checkpoints_of_the_agent_that_everybody_can_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, above: int, mode: int, level: Level
) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _: AGENT_FLAGS)
    meta = scene.root / "var/lib/mesos/meta"
    meta.mkdir(parents=True)
    meta.chmod(mode)
    meta.parent.chmod(above)
    finding = scene.one("agent", level, "/var/lib/mesos/meta" if level is Level.WARN else "flags are right")
    assert finding.remedy == ("chmod 700 /var/lib/mesos/meta" if level is Level.WARN else "")


def test_doctor_reports_ports_that_cannot_be_listed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _: None)
    scene.env["MESOS_GPU_CONTROL_PORTS"] = "zk"
    scene.one("ports", Level.FAIL, "MESOS_GPU_CONTROL_PORTS has the entry 'zk'")


def test_kernel_setting_that_is_open_is_a_warning(scene: Scene) -> None:
    scene.file("proc/sys/kernel/yama/ptrace_scope", "0\n")
    scene.file("proc/sys/fs/protected_fifos", "0\n")
    scene.file("proc/sys/user/max_user_namespaces", "100\n")
    for check in ("tracing", "links", "userns"):
        (finding,) = scene.findings(check)
        assert (finding.level, finding.remedy[:7]) == (Level.WARN, "sysctl ")


def test_doctor_command_prints_every_finding_and_fails_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(
        doctor.CHECKS, "own code"
    )  # it looks at all files of this interpreter: test_own_code.py
    monkeypatch.setenv("MESOS_GPU_NODE_DIR", str(tmp_path))
    monkeypatch.setenv("MESOS_GPU_ISOLATION", "off")
    simulated = tmp_path / "gpus.json"
    simulated.write_text('{"gpus": []}')
    monkeypatch.setenv("MESOS_GPU_INVENTORY", str(simulated))
    (tmp_path / "ledger.sqlite").write_text("x" * 5000)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    damaged = next(i for i, line in enumerate(lines) if line.startswith("FAIL  ledger      the ledger "))
    assert lines[damaged + 1].startswith(" " * 18 + "To fix: end this host's GPU tasks")
    assert any(line.startswith("WARN  isolation   MESOS_GPU_ISOLATION=off") for line in lines)
    (tmp_path / "ledger.sqlite").unlink()
    result = CliRunner().invoke(main, ["doctor", "--json"])
    finding_by_check = {finding["check"]: finding for finding in json.loads(result.stdout)}
    assert finding_by_check["ledger"]["level"] == "OK"
    assert finding_by_check["ledger"]["remedy"] is None
    if os.geteuid() == 0:
        assert result.exit_code == 0, [each for each in finding_by_check.values() if each["level"] == "FAIL"]


def test_doctor_says_whether_the_kernel_shows_listeners(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Host(scene.directory, nvml(), {}, Path("/"))
    assert [finding.level for finding in task_ports.look_at_proof(here)] == [Level.OK]
    off = Host(scene.directory, nvml(), {"MESOS_GPU_PORT_PROOF": "off"}, Path("/"))
    assert [finding.level for finding in task_ports.look_at_proof(off)] == [Level.WARN]
    monkeypatch.setattr("isolator.confinement.listeners._CGROUP_ID", 9999)  # an attribute that no kernel has
    [finding] = task_ports.look_at_proof(here)
    assert (finding.level, "Linux 5.9" in finding.remedy) == (Level.FAIL, True)
