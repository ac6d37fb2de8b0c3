"""Images of registries that want a login, run by the executor through a real Docker Engine: with the login of the
launch, and not without it, whatever the engine has in its cache."""

import base64
import contextlib
import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from isolator.agent.docker_engine import DockerEngine
from isolator.images.public import NAME
from isolator.secrets import keys
from mesos_gpu.adapters.secrets import envelope
from mesos_gpu.model.secret import IMAGE_LOGIN
from tests import registries
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.dockerd import Dockerd
from tests.doubles.images import busybox_layer
from tests.doubles.scripted_agent import scripted_agent
from tests.hosts import TASK, Host, host
from tests.kernel.conftest import needs
from tests.live_files import contains, paths_below
from tests.registries import AMD, ARM, Running, push

MISSING: Final = dockerd.missing() or registries.missing()
pytestmark = [pytest.mark.kernel, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
PASSWORD: Final = f"s3cret-{os.urandom(16).hex()}"
AGENT: Final = "S0"
USER: Final = pwd.getpwuid(65534).pw_name


@pytest.fixture(scope="module")
def engine() -> Iterator[Dockerd]:
    with Dockerd() as started:
        yield started
    assert started.processes() == []
    assert started.mounts() == []


@pytest.fixture(scope="module", params=["basic", pytest.param("token", marks=pytest.mark.long)])
def private(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registries.registry(tmp_path_factory.mktemp(request.param), request.param, PASSWORD) as running:
        layers = [busybox_layer(dockerd.busybox(), ["sh", "echo", "sleep"])]
        for tag, platform in (("1", AMD), ("arm", ARM)):
            push(running.back, "team/app", tag, {"Env": ["PATH=/bin"]}, layers=layers, platform=platform)
        yield running


class Place:
    """Executors of one node, which has a key."""

    def __init__(self, directory: Path, engine: Dockerd) -> None:
        self.directory, self._engine = directory, engine
        directory.mkdir()
        self.node = directory / "node"
        self.node.mkdir(mode=0o700)
        self.key = keys.current(self.node, time.time())

    def end(
        self, image: str, login: str | None = None, *, state: str = "TASK_FAILED", **more: Any
    ) -> tuple[str, bool]:
        """Run an image to its end; return the message, and whether the infrastructure is to blame."""
        with self.started(image, login, **more) as one:
            message, outcome = one.end(state)
            return message, outcome.infrastructure

    @contextlib.contextmanager
    def started(self, image: str, login: str | None = None, **more: Any) -> Iterator[Host]:
        given = {
            "MESOS_GPU_DOCKER_SOCKET": str(self._engine.socket),
            "MESOS_GPU_ISOLATION": "cgroup1",
            "MESOS_SLAVE_ID": AGENT,
        }
        with scripted_agent() as agent, host(self.directory, agent, **given) as one:
            task = {"command": "echo ran", "user": USER, **self._sealed(login), **more}
            one.launch(image=image, container_engine="docker", **task)
            yield one

    def _sealed(self, login: str | None) -> dict[str, str]:
        if login is None:
            return {}
        message = envelope.seal({IMAGE_LOGIN: login.encode()}, self.key, envelope.purpose(TASK, AGENT))
        return {"image_secret": "team/ngc", "sealed_secrets": message}


@pytest.fixture
def place(open_directory: Path, engine: Dockerd) -> Iterator[Place]:
    needs("cgroup1")
    yield Place(open_directory / f"private-{time.monotonic_ns()}", engine)
    for each in engine.ask("GET", "/images/json"):
        engine.ask("DELETE", f"/images/{each['Id']}?force=1")


def test_private_image_runs_with_its_login_only(place: Place, private: Running, engine: Dockerd) -> None:
    image, login = f"{private.host}/team/app:1", private.config()
    refused = place.end(image)
    assert place.end(image, login, state="TASK_FINISHED") == ("Command exited with status 0", False)
    assert DockerEngine(str(engine.socket)).image(image) is not None, "it is in the engine's cache"
    for told in (refused, place.end(image), place.end(image, private.config("wrong"))):
        assert told[0].count(image)
        assert "image_secret" in told[0]
        assert not told[1], "it would be the same elsewhere"
    ident = engine.ask("GET", f"/images/{image}/json")["Id"]
    for name in (ident, ident.partition(":")[2][:12]):
        message, _ = place.end(name)
        assert "ran" not in message
    assert place.end(image, login, state="TASK_FINISHED")[0] == "Command exited with status 0"


def test_login_for_another_registry_is_not_sent_to_this_one(place: Place, private: Running) -> None:
    other = private.config().replace(private.host, "reg.example")
    message, infrastructure = place.end(f"{private.host}/team/app:1", other)
    assert f"the image secret team/ngc has no login for {private.host}" in message
    assert "but for reg.example" in message
    assert not infrastructure
    message, infrastructure = place.end(f"{private.host}/team/app:1", other, image_secret_is_default=True)
    assert "image_secret" in message, "a queue's logins are for other images"
    assert not infrastructure


def test_image_for_another_platform_is_refused(place: Place, private: Running) -> None:
    message, infrastructure = place.end(f"{private.host}/team/app:arm", private.config())
    assert "is not made for linux/amd64, but for linux/arm64" in message
    assert not infrastructure


def test_cached_image_is_run_without_its_registry_only_if_it_is_public(
    place: Place, engine: Dockerd, tmp_path: Path
) -> None:
    with registries.registry(tmp_path / "basic", "basic", PASSWORD) as running:
        push(
            running.back,
            "team/app",
            "1",
            {"Env": ["PATH=/bin"]},
            layers=[busybox_layer(dockerd.busybox(), ["sh"])],
        )
        private, public, login = (
            f"{running.host}/team/app:1",
            f"{running.back[7:]}/team/app:1",
            running.config(),
        )
        place.end(private, login, state="TASK_FINISHED")
        place.end(public, state="TASK_FINISHED")
        missing = f"{running.back[7:]}/team/none:1"
        message, infrastructure = place.end(missing)
        assert missing in message
        assert not infrastructure
    for told in (place.end(private, login), place.end(private)):
        assert told[1], f"the registry is down: {told[0]}"
    assert place.end(public, state="TASK_FINISHED")[0] == "Command exited with status 0"
    (place.node / NAME).unlink()
    assert place.end(public)[1]


def test_password_is_nowhere_in_clear(place: Place, private: Running, engine: Dockerd) -> None:
    image = f"{private.host}/team/app:1"
    pair = f"puller:{PASSWORD}"
    wanted = [PASSWORD.encode(), base64.b64encode(pair.encode()), base64.b64encode(private.config().encode())]
    with place.started(image, private.config(), command="echo ready; sleep 600") as one:
        wait_until("it runs", lambda: "ready" in one.stdout())
        files = (path for top in (place.directory, engine.directory) for path in paths_below(top))
        processes = (path / name for path in Path("/proc").glob("[0-9]*") for name in ("environ", "cmdline"))
        places = [str(path) for path in (*files, *processes) if contains(path, wanted)]
        assert places == []
        one.kill(grace_s=0.0)
        one.end("TASK_KILLED")
