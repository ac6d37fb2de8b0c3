"""Findings of the doctor on task ports and metadata addresses."""

import pytest

from isolator.node import doctor
from isolator.node.findings import Level
from tests.unit.isolator.node.test_doctor import Scene, scene, volumes

__all__ = ["scene", "volumes"]


@pytest.mark.parametrize(
    ("kept", "setting", "level", "text"),
    [
        ("", "31000-32000", Level.OK, "a task binds only its own of 31000-32000"),
        ("", "9000,32000-33000", Level.FAIL, "overlaps the ports of tasks at 32768-33000"),
        ("32768-33000", "9000,32000-33000", Level.OK, "the kernel chooses none of these"),
        ("", "x", Level.FAIL, "MESOS_GPU_TASK_PORTS is 'x': 'x' is not a port"),
        ("", "", Level.OK, "no agent that gives ports to tasks answers"),
    ],
)
def test_ports_of_tasks_that_the_kernel_chooses(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, kept: str, setting: str, level: Level, text: str
) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _: None)
    scene.file("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    scene.file("proc/sys/net/ipv4/ip_local_reserved_ports", f"{kept}\n")
    scene.env["MESOS_GPU_TASK_PORTS"] = setting
    finding = scene.one("task ports", level, text)
    if "overlaps" in text:
        assert "sysctl -w net.ipv4.ip_local_reserved_ports=32768-33000 " in finding.remedy
        assert "outside of 32768-60999" in finding.remedy


def test_an_agent_whose_ports_are_unknown(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _: {"work_dir": "/var/lib/mesos"})
    finding = scene.one("task ports", Level.FAIL, "no task starts: the agent's range of ports is unknown")
    assert "set MESOS_GPU_TASK_PORTS on the agent" in finding.remedy
    scene.env["MESOS_GPU_CONTROL_PORTS"] = "off"
    scene.one("task ports", Level.WARN, "tasks can bind ports of other tasks")


@pytest.mark.parametrize(
    ("name", "value", "level", "text"),
    [
        ("HOME", "/", Level.OK, "link-local and metadata addresses, except the name servers 169.254.169.254"),
        ("MESOS_GPU_METADATA", "allow", Level.WARN, "tasks reach link-local and metadata addresses"),
        ("MESOS_GPU_CONTROL_PORTS", "off", Level.WARN, "tasks reach link-local and metadata addresses"),
        ("MESOS_GPU_METADATA", "no", Level.FAIL, "MESOS_GPU_METADATA is 'no'"),
    ],
)  # fmt: skip
def test_doctor_says_whether_tasks_reach_a_clouds_metadata(
    scene: Scene, name: str, value: str, level: Level, text: str
) -> None:
    scene.file("etc/resolv.conf", "nameserver 169.254.169.254\nnameserver 10.0.0.2\n")
    scene.env[name] = value
    finding = scene.one("metadata", level, text)
    assert (finding.remedy != "") == (level is not Level.OK)
