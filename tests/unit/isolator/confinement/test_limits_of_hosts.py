"""Findings of the doctor on limits of tasks, as far as settings and flags decide them."""

import pytest

from isolator.node import doctor
from isolator.node.findings import Level
from tests.unit.isolator.node.test_doctor import Scene, scene, volumes

__all__ = ["scene", "volumes"]


@pytest.mark.parametrize(
    ("env", "isolation", "text"),
    [
        ({"MESOS_GPU_UNLIMITED": "memory"}, "", "MESOS_GPU_UNLIMITED=memory: a task can use up the host's memory"),
        ({"MESOS_GPU_UNLIMITED": "memory,cpu"}, "cgroups/mem", "MESOS_GPU_UNLIMITED=cpu: a task can use up"),
        ({"MESOS_GPU_ISOLATION": "off"}, "", "MESOS_GPU_ISOLATION=off: a task can use up the host's cpu and memory"),
    ],
)  # fmt: skip
def test_resources_that_nothing_limits_are_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], isolation: str, text: str
) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _: {"isolation": isolation})
    scene.env.update(env)
    assert "--isolation=cgroups/mem,cgroups/cpu" in scene.one("limits", Level.WARN, text).remedy


def test_limits_of_the_agent_need_none_of_the_executor(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _: {"isolation": "cgroups/cpu,cgroups/mem"})
    scene.env["MESOS_GPU_ISOLATION"] = "off"
    assert scene.findings("limits") == []


def test_unknown_resource_without_a_limit_fails(scene: Scene) -> None:
    scene.env["MESOS_GPU_UNLIMITED"] = "disk"
    finding = scene.one("limits", Level.FAIL, "MESOS_GPU_UNLIMITED names 'disk'")
    assert finding.remedy == "list some of memory, cpu, io, separated by commas"
