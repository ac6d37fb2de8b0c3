"""Findings of doctor and plan about frameworks that share the roles of queues."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from isolator.node.findings import Level
from mesos_gpu.cli.app import App
from mesos_gpu.cli.mesos import quota
from mesos_gpu.cli.mesos.tree import Shared
from mesos_gpu.model.tenancy import QueueDocument, QueueSpec
from mesos_gpu.wire.mesos.reservations import ROLE_OF

OURS = {
    "id": "f1", "name": "mesos-gpu", "roles": ["gpu", "gpu-research"],
    "labels": [{"key": f"{ROLE_OF}research", "value": "gpu-research"}],
}  # fmt: skip
QUEUES = {"research": QueueSpec(weight=0, limit_gpus={"default": 2000}), "default": QueueSpec()}


def of_master(monkeypatch: pytest.MonkeyPatch, frameworks: Mapping[str, list[str]]) -> Any:
    """A master with our framework, and with which frameworks each role has."""
    roles = [
        {"name": role, "frameworks": of_role, "quota": {"limit": {"gpus": 2.0}} if role != "gpu" else {}}
        for role, of_role in frameworks.items()
    ]
    told: Mapping[str, Any] = {"/roles": roles, "/master/frameworks": [OURS]}
    master = SimpleNamespace(get=lambda path, _key: told[path])
    monkeypatch.setattr(quota, "Master", lambda *_: master)
    document = QueueDocument(1, queues=QUEUES)
    monkeypatch.setattr(quota, "shared", lambda _: Shared(document, {}, {"default": {"T4": 4}}, "f1"))
    monkeypatch.setattr(App, "client", lambda _: None)
    return master


def test_quota_warns_of_another_framework_in_the_role_of_a_queue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    master = of_master(monkeypatch, {"gpu": ["f1"], "gpu-research": ["f1", "f2"]})
    (finding,) = quota.findings(App(), "m:5050", None)
    assert finding.level is Level.WARN
    assert finding.text.startswith(
        "role gpu-research of queues is also used by 1 other framework: their GPUs count in its limit"
    )
    assert "register_frameworks" in finding.remedy
    lines = quota._looked(App(), master, (), ())
    assert [(line.wanted.role, line.strangers) for line in lines] == [("gpu", 0), ("gpu-research", 1)]
    quota._tell(lines, as_json=False)
    assert "limits of research; shared with 1 other framework" in capsys.readouterr().out


def test_quota_does_not_warn_of_a_queue_alone_in_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    of_master(monkeypatch, {"gpu": ["f1"], "gpu-research": ["f1"]})
    assert list(quota.findings(App(), "m:5050", None)) == []
