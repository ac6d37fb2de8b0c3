"""First document of queues on a cluster in use: effects on work that names no queue, and what a dry run lists."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.access.test_access_cli import CliRig, done, failed
from tests.contract.cli.cli_rig import call
from tests.contract.queues.test_queues_api import node

ALL_GUARANTEED = "queues: {production: {guarantee_gpus: 2}, research: {guarantee_gpus: 2}}"
PLAIN = ("run", "--detach", "--gpus", "1", "--", "true")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CliRig]:
    rig = CliRig()
    monkeypatch.setenv("MESOS_GPU_URL", rig.server.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    node(rig, "a1", 4)
    yield rig
    rig.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queues.yaml"


def create_app(rig: CliRig, id: str, **fields: Any) -> None:
    body = {"id": id, "cmd": "sleep 9", "cpus": 0.1, "mem": 32, "instances": 2, "gpus": 1, **fields}
    response = rig.call("ann", "POST", "/v2/apps", json=body)
    assert response.ok, response.text


def blocks(file: Path, text: str) -> list[tuple[str, str, str]]:
    """Return the kind, name and queue of what a document would let wait or refuse."""
    file.write_text(text)
    plan = json.loads(done("queue", "apply", file, "--dry-run", "--json"))
    return [(each["kind"], each["name"], each["queue"]) for each in plan["blocks"]]


def test_work_without_a_queue_goes_on_beside_a_document_that_guarantees_all_gpus(
    rig: CliRig, file: Path
) -> None:
    create_app(rig, "/m")
    assert blocks(file, ALL_GUARANTEED) == []
    done("queue", "apply", file, "--yes")
    done(*PLAIN)
    create_app(rig, "/n")


def test_dry_run_names_jobs_apps_and_commands_of_a_document_that_names_the_default_queue(
    rig: CliRig, file: Path
) -> None:
    create_app(rig, "/m")
    done("run", "--detach", "--gpus", "4", "--name", "large", "--", "true")
    job = next(each["id"] for each in json.loads(done("ps", "--json")) if each["name"] == "large")
    listed = blocks(file, "queues: {production: {guarantee_gpus: 2}, default: {}}")
    assert ("job", job, "default") in listed
    assert ("app", "/m", "default") in listed
    assert ("command", "mesos-gpu run --gpus 1", "default") in listed
    text = done("queue", "apply", file, "--dry-run")
    assert "Would wait or be refused:" in text
    assert f"  job {job}: queue default has no guarantee, and only preemptible jobs start without one" in text
    assert "  app /m: queue default has no guarantee" in text
    assert "  mesos-gpu run --gpus 1: queue default has no guarantee" in text
    assert json.loads(done("queue", "show", "--json"))["version"] == 0


def test_dry_run_names_no_command_that_was_refused_before(rig: CliRig, file: Path) -> None:
    strict = "queues: {production: {guarantee_gpus: 2}, default: {}, dev: {}}"
    file.write_text(strict)
    done("queue", "apply", file, "--yes")
    assert blocks(file, strict.replace("dev: {}", "dev: {}, new: {}")) == [
        ("command", "mesos-gpu run --queue new --gpus 1", "new")
    ]


def test_refusal_of_a_plain_job_names_no_option_that_was_not_given(rig: CliRig, file: Path) -> None:
    file.write_text("queues: {production: {guarantee_gpus: 2}, default: {}}")
    done("queue", "apply", file, "--yes")
    first = failed(call(*PLAIN), 65).splitlines()[0]
    assert first == (
        "Error: queue default has no guarantee, and only preemptible jobs start without one: make it preemptible, or "
        "use a queue whose guarantee has room for it, as production"
    )
    named = failed(call("run", "--queue", "gone", "--gpus", "1", "--", "true"), 65)
    assert named.startswith("Error: --queue: there is no queue gone")


@pytest.mark.parametrize("way", [("rollback", "0"), ("apply",)], ids=" ".join)
def test_empty_document_has_the_effect_of_none(rig: CliRig, file: Path, way: tuple[str, ...]) -> None:
    file.write_text("queues: {production: {guarantee_gpus: 2}, default: {}}")
    done("queue", "apply", file, "--yes")
    assert call(*PLAIN).exit_code == 65
    file.write_text("queues: {}")
    done("queue", *way, *([file] if way == ("apply",) else []), "--yes")
    done(*PLAIN)
    done("run", "--detach", "--queue", "any-name", "--gpus", "1", "--", "true")
    assert json.loads(done("queue", "show", "--json"))["version"] == 2
