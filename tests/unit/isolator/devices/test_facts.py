"""What a host says of itself, read under roots of the test's own."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.devices import cgroups, facts
from isolator.devices.rules import DriverFacts
from mesos_gpu.errors import BadConfiguration, Damaged, MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.card import Ability, MigInstance, Sharing
from mesos_gpu.model.shares.share import Method, Share

A, B = GpuId("GPU-aaaaaaaa-0000-0000-0000-000000000000"), GpuId("GPU-bbbbbbbb-0000-0000-0000-000000000000")
DEVICES = """Character devices:
  1 mem
195 nvidia-frontend
509 nvidia-uvm
511 nvidia-caps

Block devices:
195 not-nvidia
"""


def gpu(uuid: GpuId, minor: int, health: Health = Health.OK) -> Gpu:
    return Gpu(id=uuid, model="sim", memory_mib=1, minor=minor, pci_bus_id="", health=health)


def proc(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / "proc" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def card(root: Path, address: str, uuid: str, minor: int) -> None:
    path = root / "proc/driver/nvidia/gpus" / address / "information"
    path.parent.mkdir(parents=True)
    path.write_text(f"Model: \t\t Tesla\nIRQ:   \t\t 40\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")


def test_majors_are_those_of_character_devices(tmp_path: Path) -> None:
    driver = facts.read_driver(proc(tmp_path, devices=DEVICES))
    assert driver == DriverFacts({"mem": 1, "nvidia-frontend": 195, "nvidia-uvm": 509, "nvidia-caps": 511})
    assert driver.loaded
    assert not facts.read_driver(tmp_path / "nothing").loaded


def test_optional_devices_are_named_or_refused(tmp_path: Path) -> None:
    driver = facts.read_driver(tmp_path, {"MESOS_GPU_OPTIONAL_DEVICES": "modeset, caps/1,caps/2"})
    assert (driver.modeset, driver.caps) == (True, (1, 2))
    with pytest.raises(BadConfiguration, match="'caps/x'"):
        facts.read_driver(tmp_path, {"MESOS_GPU_OPTIONAL_DEVICES": "caps/x"})


def test_the_drivers_own_minors(tmp_path: Path) -> None:
    card(tmp_path, "0000:3b:00.0", A, 1)
    card(tmp_path, "0000:af:00.0", "GPU-????????-????-????-????-????????????", 0)
    assert facts.minors_of_driver(tmp_path) == {A: 1}


def test_minors_come_from_the_inventory_of_this_boot(tmp_path: Path) -> None:
    inventory = Inventory(
        (gpu(A, 3), gpu(B, 0)), source="nvml", driver_version="535.183.01", cuda_version="12.2"
    )
    facts.write_inventory(tmp_path, inventory)
    assert facts.read_inventory(tmp_path) == inventory
    assert facts.minors((A,), inventory, tmp_path) == {A: 3}
    facts.write_inventory(tmp_path, replace(inventory, gpus=(gpu(A, 0), gpu(B, 3))))
    assert facts.minors((A, B), facts.read_inventory(tmp_path), tmp_path) == {A: 0, B: 3}, "renumbered"


def test_inventory_without_shares_reads_none(tmp_path: Path) -> None:
    shared = replace(gpu(B, 0), sharing=Sharing(81_000, ((Ability.SHIM, ""),)))
    inventory = Inventory((gpu(A, 3), shared), uses=(ShareUse(TaskId("t"), B, 100),))
    facts.write_inventory(tmp_path, inventory)
    assert facts.read_inventory(tmp_path) == inventory
    assert facts.read_inventory(tmp_path, shares=False) == Inventory((gpu(A, 3), gpu(B, 0)))


def test_an_inventory_of_another_boot_says_nothing(tmp_path: Path) -> None:
    facts.write_inventory(tmp_path, Inventory((gpu(A, 3),)))
    path = tmp_path / "inventory.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "another"}))
    with pytest.raises(Unavailable, match="since this host booted"):
        facts.read_inventory(tmp_path)
    path.unlink()
    with pytest.raises(Unavailable, match="since this host booted"):
        facts.read_inventory(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", '{"boot_id": 1', "[]"])
def test_a_broken_inventory_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "inventory.json").write_text(text)
    with pytest.raises(Damaged, match=r"inventory\.json"):
        facts.read_inventory(tmp_path)


def test_card_that_is_absent_or_sick_is_not_granted(tmp_path: Path) -> None:
    inventory = Inventory((gpu(A, 3, Health.SICK),))
    with pytest.raises(Unavailable, match="is sick"):
        facts.minors((A,), inventory, tmp_path)
    with pytest.raises(Unavailable, match="not on this host"):
        facts.minors((B,), inventory, tmp_path)


def test_a_minor_that_nvml_and_the_driver_disagree_on_is_not_granted(tmp_path: Path) -> None:
    card(tmp_path, "0000:3b:00.0", A, 1)
    with pytest.raises(MesosGpuError, match="minor 3 by NVML, but 1 by the driver"):
        facts.minors((A,), Inventory((gpu(A, 3),), source="nvml"), tmp_path)
    assert facts.minors((A,), Inventory((gpu(A, 3),), source="simulated"), tmp_path) == {A: 3}


def tool(root: Path, script: str) -> Path:
    path = root / "usr/bin/nvidia-modprobe"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return root


def test_nvidias_own_tool_loads_the_driver(tmp_path: Path) -> None:
    facts.load_driver(tmp_path)  # without it, nothing happens
    facts.load_driver(tool(tmp_path, f'echo "$@" > {tmp_path}/called'))
    assert (tmp_path / "called").read_text() == "-c 0 -u\n"


def test_driver_load_failure_is_reported_in_the_tools_words(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="ERROR: no such module"):
        facts.load_driver(tool(tmp_path, "echo ERROR: no such module >&2; exit 1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes a device node")
def test_extra_devices_are_the_hosts_and_not_nvidias(tmp_path: Path) -> None:
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    os.mknod(tmp_path / "dev/infiniband/uverbs0", stat.S_IFCHR | 0o666, os.makedev(231, 192))
    os.mknod(tmp_path / "dev/nvidia0", stat.S_IFCHR | 0o666, os.makedev(195, 0))
    (tmp_path / "dev/file").touch()

    def extra(value: str) -> list[tuple[str, int, int]]:
        env = {"MESOS_GPU_EXTRA_DEVICES": value}
        return [(d.path, d.major, d.minor) for d in facts.extra_devices(env, DriverFacts(), tmp_path)]

    assert extra("/dev/infiniband/uverbs0") == [("/dev/infiniband/uverbs0", 231, 192)]
    assert extra("") == []
    for bad, why in (
        ("/dev/nvidia0", "a device of NVIDIA"), ("/dev/file", "not a character device"), ("/dev/no", "No such file"),
        ("/dev/../dev/infiniband/uverbs0", "not a character device below /dev"),
    ):  # fmt: skip
        with pytest.raises(BadConfiguration, match=why):
            extra(bad)


# --- cgroups

V1 = "30 25 0:26 / /sys/fs/cgroup/devices rw,nosuid shared:9 - cgroup cgroup rw,devices\n"
PAIR = "31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
V2_ONLY = "29 24 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = V1 + PAIR + "29 24 0:25 / /sys/fs/cgroup/cgroup\\0402 rw,nosuid shared:8 - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "mount_points"),
    [
        (V1 + PAIR, {"cgroup1": "/sys/fs/cgroup/devices"}),
        (V2_ONLY, {"cgroup2": "/sys/fs/cgroup"}),
        (HYBRID, {"cgroup1": "/sys/fs/cgroup/devices", "cgroup2": "/sys/fs/cgroup/cgroup 2"}),
        ("", {}),
    ],
    ids=["v1", "v2", "hybrid", "none"],
)
def test_cgroup_mount_points_are_read(tmp_path: Path, mountinfo: str, mount_points: dict[str, str]) -> None:
    assert {
        k: str(v) for k, v in cgroups.mounted(proc(tmp_path, self__mountinfo=mountinfo)).items()
    } == mount_points


def test_cgroup_of_a_container_is_given_or_own(tmp_path: Path) -> None:
    own = "5:devices:/mesos/c-1\n4:cpu,cpuacct:/mesos/c-1\n0::/system.slice/mesos-agent.service\n"
    root = proc(tmp_path, self__mountinfo=HYBRID, self__cgroup=own)
    given = cgroups.cgroup_of("c-1", "cgroup1", root)
    assert (str(given.path), given.own) == ("/sys/fs/cgroup/devices/mesos/c-1", False)
    made = cgroups.cgroup_of("c-1", "cgroup2", root)
    assert (str(made.path), made.own) == ("/sys/fs/cgroup/cgroup 2/mesos_gpu/c-1", True)
    assert cgroups.cgroup_of("c-2", "cgroup1", root).own, "another container's"
    with pytest.raises(Unavailable, match="no cgroup2"):
        cgroups.cgroup_of("c-1", "cgroup2", proc(tmp_path / "v1", self__mountinfo=V1, self__cgroup=own))


@pytest.mark.parametrize(
    ("wish", "there", "isolation"),
    [
        ("", {"cgroup1", "cgroup2"}, "cgroup1"),
        ("auto", {"cgroup2"}, "cgroup2"),
        ("cgroup2", {"cgroup1", "cgroup2"}, "cgroup2"),
        ("off", set(), "off"),
    ],
)
def test_the_isolation_is_the_wish_or_what_is_there(
    monkeypatch: pytest.MonkeyPatch, wish: str, there: set[str], isolation: str
) -> None:
    monkeypatch.setattr(cgroups, "mounted", lambda: dict.fromkeys(there, Path("/x")))
    assert facts.isolation_name({"MESOS_GPU_ISOLATION": wish}) == isolation


@pytest.mark.parametrize(("wish", "there"), [("auto", set()), ("cgroup1", {"cgroup2"})])
def test_no_isolation_is_never_assumed(monkeypatch: pytest.MonkeyPatch, wish: str, there: set[str]) -> None:
    monkeypatch.setattr(cgroups, "mounted", lambda: dict.fromkeys(there, Path("/x")))
    with pytest.raises(Unavailable, match="MESOS_GPU_ISOLATION"):
        facts.isolation_name({"MESOS_GPU_ISOLATION": wish})


@pytest.mark.parametrize(
    ("env", "isolation"),
    [({"MESOS_GPU_ISOLATION": "off"}, "off"), ({}, "cgroup1"), ({"MESOS_GPU_ISOLATION": ""}, "cgroup1")],
)
def test_isolation_is_by_default_what_this_process_is_told(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], isolation: str
) -> None:
    monkeypatch.setattr(cgroups, "mounted", lambda: {"cgroup1": Path("/x"), "cgroup2": Path("/y")})
    monkeypatch.delenv("MESOS_GPU_ISOLATION", raising=False)
    assert facts.isolation_name(env) == isolation
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert facts.isolation_name() == isolation
    monkeypatch.setenv("MESOS_GPU_ISOLATION", "off")
    assert facts.isolation_name({}) == "cgroup1"


def test_isolation_of_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfiguration, match="MESOS_GPU_ISOLATION is 'v2'"):
        facts.isolation_name({"MESOS_GPU_ISOLATION": "v2"})


@pytest.mark.parametrize("path", ["/dev/no", "dev/char", "/other/char", "/dev/../dev/char", "/dev/file"])
def test_an_extra_device_is_a_character_device_below_dev(tmp_path: Path, path: str) -> None:
    for name in "dev/char", "other/char":
        (tmp_path / name).parent.mkdir()
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(231, 192))
    (tmp_path / "dev/file").touch()
    env = {"MESOS_GPU_EXTRA_DEVICES": f"/dev/char,{path}"}
    with pytest.raises(BadConfiguration, match=f"names {path}: "):
        facts.extra_devices(env, DriverFacts(), tmp_path)


@pytest.mark.parametrize("source", ["nvml", "simulated"])
def test_devices_of_a_share_are_those_of_its_cards_or_of_its_instance(tmp_path: Path, source: str) -> None:
    driver = DriverFacts({"nvidia": 195, "nvidia-caps": 510}, caps=(9,))
    first = MigInstance("MIG-1", "1g.5gb", 1, 1, gpu_instance=3, compute_instance=4, start=0)
    instances = (first, replace(first, uuid="MIG-2", gpu_instance=5, compute_instance=0, start=1))
    cards = [
        replace(gpu(GpuId("GPU-a"), 0), sharing=Sharing(1, instances=instances)),
        gpu(GpuId("GPU-b"), 1),
        replace(gpu(GpuId("GPU-c"), 2), sharing=Sharing(1, instances=instances[:1])),
    ]
    inventory = Inventory(tuple(cards), source)
    text = """gpu0/gi3/access 30
gpu0/gi3/ci4/access 34
gpu0/gi5/access 50
gpu0/gi5/ci0/access 55
gpu2/gi3/access 80
gpu2/gi3/ci4/access 84
"""
    (tmp_path / "proc/driver/nvidia-caps").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia-caps/mig-minors").write_text(text)

    def caps(share: Share | None, minors: dict[GpuId, int]) -> list[int]:
        devices = facts.granted_devices(driver, minors, share, inventory, tmp_path)
        return [each.minor for each in devices if each.major == 510]

    one = {GpuId("GPU-a"): 0}
    assert caps(None, one) == [9]
    assert caps(Share(500, 1, 1, Method.TURNS), one) == [9]
    if source == "simulated":
        assert caps(Share(500, 1, 1, Method.MIG, instance="MIG-1"), one) == [9]
        return
    assert caps(Share(500, 1, 1, Method.MIG, instance="MIG-1"), one) == [30, 34]
    assert caps(Share(500, 1, 1, Method.MIG, instance="1g.5gb@1"), one) == [50, 55]
    assert caps(Share(500, 1, 1, Method.MIG, instance="MIG-1"), {GpuId("GPU-c"): 2}) == [80, 84]
    for instance, minors in (("MIG-3", one), ("MIG-1", {GpuId("GPU-b"): 1})):
        with pytest.raises(Unavailable, match=f"the MIG instance {instance} is not on this host now"):
            caps(Share(500, 1, 1, Method.MIG, instance=instance), minors)


@pytest.mark.parametrize("health", list(Health))
def test_a_card_is_granted_while_it_is_well_or_suspect(tmp_path: Path, health: Health) -> None:
    inventory = Inventory((replace(gpu(GpuId("GPU-a"), 4), health=health),), "nvml")
    if health in (Health.OK, Health.SUSPECT):
        assert facts.minors((GpuId("GPU-a"),), inventory, tmp_path) == {GpuId("GPU-a"): 4}
    else:
        with pytest.raises(Unavailable, match=f"GPU-a is {health.value}"):
            facts.minors((GpuId("GPU-a"),), inventory, tmp_path)
