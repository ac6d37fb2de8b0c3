"""Device rules: who gets which node, whatever the numbers of this boot are."""

from dataclasses import replace

import pytest

from isolator.devices.rules import Device, DriverFacts, Rule, allows, nvidia_devices, rules_of
from mesos_gpu.errors import BadConfiguration

OLD = DriverFacts({"mem": 1, "nvidia-frontend": 195, "nvidia-uvm": 509, "nvidia-caps": 511})
NEW = DriverFacts({"nvidia": 195, "nvidiactl": 195, "nvidia-modeset": 195, "nvidia-uvm": 235})
NONE = DriverFacts({"mem": 1})


def test_a_task_without_gpus_gets_no_nvidia_node_at_all() -> None:
    assert nvidia_devices(OLD, []) == ()
    assert nvidia_devices(replace(OLD, modeset=True, caps=(1,)), []) == ()
    rules = rules_of(nvidia_devices(OLD, []))
    for major, minor in ((195, 255), (195, 254), (195, 0), (509, 0), (509, 1), (511, 1)):
        assert not any(allows(rules, "c", major, minor, access) for access in "rwm")


@pytest.mark.parametrize("facts", [OLD, NEW], ids=["before 550", "since 550"])
def test_a_task_gets_its_cards_and_what_they_need(facts: DriverFacts) -> None:
    uvm = facts.majors["nvidia-uvm"]
    assert nvidia_devices(facts, [5, 0, 5]) == (
        Device("/dev/nvidiactl", 195, 255),
        Device("/dev/nvidia-uvm", uvm, 0),
        Device("/dev/nvidia-uvm-tools", uvm, 1),
        Device("/dev/nvidia0", 195, 0),
        Device("/dev/nvidia5", 195, 5),
    )


def test_optional_devices_follow_the_operators_setting() -> None:
    paths = [device.path for device in nvidia_devices(replace(OLD, modeset=True, caps=(1, 2)), [0])]
    assert paths == [
        "/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
        "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2", "/dev/nvidia0",
    ]  # fmt: skip


def test_capabilities_of_a_mig_instance_can_be_read_and_not_written() -> None:
    rules = rules_of(nvidia_devices(replace(OLD, caps=(1,)), [0], instance=(30, 31)))
    for minor in (30, 31):
        assert allows(rules, "c", 511, minor, "r")
        assert not any(allows(rules, "c", 511, minor, access) for access in ("w", "m", "rw"))
    assert not allows(rules, "c", 511, 1, "r"), "an operator's capability is for tasks with whole GPUs"
    assert allows(rules_of(nvidia_devices(replace(OLD, caps=(1,)), [0])), "c", 511, 1, "rw")


def test_without_a_driver_the_major_is_the_registered_one() -> None:
    assert not NONE.loaded
    assert nvidia_devices(NONE, [3])[-1] == Device("/dev/nvidia3", 195, 3)


def test_a_major_is_read_and_not_assumed() -> None:
    moved = DriverFacts({"nvidia": 240, "nvidia-uvm": 241})
    rules = rules_of(nvidia_devices(moved, [2]))
    assert allows(rules, "c", 240, 2, "rw")
    assert not allows(rules, "c", 195, 2, "r")
    assert moved.nvidia_majors == {240, 241}


def test_every_other_card_is_denied_and_none_can_be_made() -> None:
    rules = rules_of(nvidia_devices(OLD, [1]))
    assert allows(rules, "c", 195, 1, "rw")
    for minor in (0, 2, 3, 254):
        assert not any(allows(rules, "c", 195, minor, access) for access in "rwm")
    assert not allows(rules, "c", 195, 1, "m"), "not even its own: it is there already"
    assert not allows(rules, "c", 195, 1, "rwm")
    assert not allows(rules, "b", 195, 1, "r")


@pytest.mark.parametrize(
    ("major", "minor", "access", "allowed"),
    [(1, 3, "rwm", True), (5, 2, "rw", True), (136, 7, "rw", True), (136, 7, "m", False), (1, 1, "r", False),
     (10, 229, "r", False)],
    ids=["null", "ptmx", "a terminal", "making one", "mem", "fuse"],
)  # fmt: skip
def test_standard_devices_of_a_task(major: int, minor: int, access: str, allowed: bool) -> None:
    assert allows(rules_of(()), "c", major, minor, access) is allowed


def test_extra_devices_are_for_every_task() -> None:
    rules = rules_of((), extra=(Device("/dev/infiniband/uverbs0", 231, 192),))
    assert allows(rules, "c", 231, 192, "rw")
    assert not allows(rules, "c", 231, 193, "r")


@pytest.mark.parametrize("minor", [254, 255])
def test_a_gpu_with_a_control_devices_minor_is_refused(minor: int) -> None:
    with pytest.raises(BadConfiguration, match=f"cannot have the minor {minor}"):
        nvidia_devices(OLD, [0, minor])


def test_a_rule_as_cgroup_v1_has_it() -> None:
    assert str(Rule("c", 195, 0, "rw")) == "c 195:0 rw"
    assert str(Rule("b", None, None, "m")) == "b *:* m"
