"""Persistent volumes in definitions of apps: defaults, what goes with them, and what does not."""

from typing import Any

import pytest

from mesos_gpu.model.apps.app import App, LostBehavior, Residency, UpgradeStrategy
from mesos_gpu.policy.apps.workload import job_of, without_effect
from mesos_gpu.wire.marathon.app import app_of, app_to_json, updated
from mesos_gpu.wire.marathon.options import gpu_options
from mesos_gpu.wire.marathon.problems import Problems

DATA: dict[str, Any] = {
    "containerPath": "data",
    "mode": "RW",
    "persistent": {"type": "root", "size": 100},
}


def defined(*volumes: Any, **more: Any) -> App | Problems:
    container = {"type": "MESOS", "volumes": list(volumes), **more.pop("container", {})}
    return app_of({"id": "/db", "cmd": "sleep 1", "container": container, **more})


def made(*volumes: Any, **more: Any) -> App:
    app = defined(*volumes, **more)
    assert isinstance(app, App), app
    return app


def faults(*volumes: Any, **more: Any) -> dict[str, str]:
    problems = defined(*volumes, **more)
    assert isinstance(problems, Problems), problems
    return {detail["path"]: detail["errors"][0] for detail in problems.as_json()["details"]}


def test_app_with_persistent_volumes_has_defaults_of_its_own() -> None:
    app = made(DATA)
    assert app.residency == Residency(3600, LostBehavior.WAIT)
    assert (app.upgrade_strategy, app.unreachable_strategy) == (UpgradeStrategy(0.5, 0.0), None)
    assert made({**DATA, "persistent": {"size": 100}}).persistent_volumes == app.persistent_volumes


def test_persistent_volume_comes_back_as_it_was_sent() -> None:
    app = made(DATA, instances=2)
    written = app_to_json(app)
    assert written["container"]["volumes"] == [
        {**DATA, "persistent": {**DATA["persistent"], "constraints": []}}
    ]
    assert written["residency"] == {
        "relaunchEscalationTimeoutSeconds": 3600,
        "taskLostBehavior": "WAIT_FOREVER",
    }
    assert app_of(written) == app
    patched = updated(app, {"instances": 3})
    assert isinstance(patched, App)
    assert patched.persistent_volumes == app.persistent_volumes


@pytest.mark.parametrize("path", ["/data", "a/b", ".", "..", "data/"])
def test_path_of_a_persistent_volume_is_one_name(path: str) -> None:
    assert list(faults({**DATA, "containerPath": path})) == ["/container/volumes(0)/containerPath"]


@pytest.mark.parametrize(
    ("persistent", "field"),
    [
        ({"size": 0}, "size"),
        ({"type": "mount", "size": 1}, "type"),
        ({"type": "path", "size": 1}, "type"),
        ({"size": 1, "maxSize": 2}, "maxSize"),
        ({"size": 1, "profileName": "fast"}, "profileName"),
        ({"size": 1, "constraints": [["path", "LIKE", "a"]]}, "constraints"),
    ],
)
def test_persistent_volume_that_is_not_offered_names_the_field(persistent: Any, field: str) -> None:
    assert list(faults({**DATA, "persistent": persistent})) == [f"/container/volumes(0)/persistent/{field}"]


def test_persistent_volume_is_written_to() -> None:
    assert faults({**DATA, "mode": "RO"}) == {
        "/container/volumes(0)/mode": "must be RW for a persistent volume"
    }


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"upgradeStrategy": {"maximumOverCapacity": 0.5}}, "/upgradeStrategy/maximumOverCapacity"),
        (
            {"unreachableStrategy": {"inactiveAfterSeconds": 1, "expungeAfterSeconds": 2}},
            "/unreachableStrategy",
        ),
    ],
)
def test_strategies_that_need_a_second_volume_are_refused(more: dict[str, Any], path: str) -> None:
    assert list(faults(DATA, **more)) == [path]


def test_residency_without_a_persistent_volume_is_refused() -> None:
    assert "set both or neither" in faults(residency={})["/residency"]


def test_two_volumes_at_one_path_are_refused() -> None:
    app = made(DATA, {"containerPath": "data", "mode": "RO", "hostPath": "/srv"})
    assert "two volumes are at 'data'" in str(job_of(app, gpu_options(app), version="1"))


def test_path_of_the_sandbox_may_be_that_of_a_volume_in_an_image() -> None:
    image = {"docker": {"image": "postgres"}}
    linked = {"containerPath": "/data", "mode": "RW", "hostPath": "data"}
    app = made(DATA, linked, container=image)
    spec = job_of(app, gpu_options(app), version="1")
    assert not isinstance(spec, str)
    assert [(mount.source, mount.volume_mib) for mount in spec.mounts] == [("data", 100), ("data", 0)]
    other = made(DATA, {**linked, "hostPath": "other"}, container=image)
    assert "a hostPath in the sandbox" in str(job_of(other, gpu_options(other), version="1"))


def test_relaunch_elsewhere_is_named_as_without_effect() -> None:
    app = made(DATA, residency={"taskLostBehavior": "RELAUNCH_AFTER_TIMEOUT"})
    assert [each.field for each in without_effect(app, gpu_options(app))] == ["residency.taskLostBehavior"]
