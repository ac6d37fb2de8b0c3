"""The engine of an image, by the job and by the cgroup that the agent gives."""

from pathlib import Path

import pytest

from isolator.confinement.enclosure import Enclosure
from isolator.devices.cgroups import Cgroup
from isolator.executor.forms import settle
from mesos_gpu.model.tasks.assignment import Assignment

GIVEN, OWN = (Cgroup("cgroup1", Path("/c"), own=own) for own in (False, True))


@pytest.mark.parametrize(
    ("asked", "image", "cgroup", "isolated", "engine"),
    [
        ("mesos", "a:1", GIVEN, True, "mesos"),
        ("mesos", "a:1", OWN, True, "own"),
        ("mesos", "a:1", None, False, "mesos"),  # which refuses images without isolation
        ("mesos", None, OWN, True, "mesos"),
        ("docker", "a:1", OWN, True, "docker"),
        ("own", "a:1", GIVEN, True, "own"),
    ],
)
def test_executor_runs_images_that_mesos_cannot_isolate(
    asked: str, image: str | None, cgroup: Cgroup | None, isolated: bool, engine: str
) -> None:
    plan = Assignment("job-1", 1, command="true", image=image, container_engine=asked)
    enclosure = Enclosure("c-1", isolated, cgroup, (), (), 195)
    assert settle(plan, enclosure).container_engine == engine


@pytest.mark.parametrize(("asked", "engine"), [("mesos", "own"), ("own", "own"), ("docker", "docker")])
def test_executor_runs_images_whose_login_mesos_would_show(asked: str, engine: str) -> None:
    plan = Assignment(
        "job-1", 1, command="true", image="a:1", container_engine=asked, image_secret="team/login"
    )
    assert settle(plan, Enclosure("c-1", True, GIVEN, (), (), 195)).container_engine == engine
