"""What end-to-end tests share: a plain cluster, Docker Engines, forms of tasks."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.local.stack import Stack
from tests.clients import reporting
from tests.doubles.dockerd import Dockerd

#: Parameters of a test that attacks from a task, or looks at it: `make test` runs a process of the host.
EACH_FORM = ("process", *(pytest.param(form, marks=pytest.mark.long) for form in ("nested", "own", "docker")))


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    """A cluster of two nodes with two GPUs each. One that waits for 80 s takes as much CPU as the start of another: so
    it is not for all modules."""
    with reporting(open_directory / "stack", 2, 2) as stack:
        yield stack


@pytest.fixture(scope="module")
def unstarted_engine() -> Iterator[Dockerd]:
    """A Docker Engine whose socket a cluster is given; it runs where a test asks for `engine`."""
    with contextlib.closing(Dockerd()) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine(unstarted_engine: Dockerd, images: Path) -> Dockerd:
    """Start the engine with the images of a module."""
    unstarted_engine.start()
    unstarted_engine.load_all(images)
    return unstarted_engine


@pytest.fixture
def form(request: pytest.FixtureRequest) -> str:
    """Name a form of tasks, by the parameter; the engine runs if it is `docker`."""
    if request.param == "docker":
        request.getfixturevalue("engine")
    return str(request.param)
