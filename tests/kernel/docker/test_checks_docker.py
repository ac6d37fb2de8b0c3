"""COMMAND checks beside a container of a real Docker Engine."""

import os
from collections.abc import Iterator

import pytest

from isolator.agent.docker_engine import ContainerSettings, DockerEngine
from isolator.confinement.listeners import Listeners
from isolator.executor.checks import Checker
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.policy.apps.healthcheck import TaskHealth
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.dockerd import Dockerd
from tests.doubles.images import busybox_layer, save

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(bool(dockerd.missing()), reason=dockerd.missing())]
APPLETS = ["sh", "cat", "id", "sleep", "test", "ls", "grep", "mknod"]


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerEngine]:
    with Dockerd() as started:
        directory = tmp_path_factory.mktemp("images")
        image = save(
            directory, "busy", [busybox_layer(dockerd.busybox(), APPLETS)], {"Env": ["PATH=/bin", "A=b"]}
        )
        started.load(image)
        yield DockerEngine(str(started.socket))


def test_a_check_is_in_the_container_and_has_no_more_rights_than_it(engine: DockerEngine) -> None:
    name, task = f"task.{os.getpid()}", f"job-1.{os.getpid()}"
    wish = ContainerSettings("busy", "65534:65534", command="exec sleep 60", env={"MESOS_TASK_ID": task})
    engine.create(name, wish)
    try:
        pid = engine.start(name)
        text = (
            "test $A = b && test $$ -lt 1000 && test -d /proc/$$ && test ! -e /etc/debian_version && id -u "
            "&& grep -E 'CapBnd|NoNewPrivs' /proc/self/status; grep -v ':/$' /proc/self/cgroup; exit 7"
        )
        check = HealthCheck(
            Protocol.COMMAND, command=text, interval_s=60, timeout_s=10, grace_period_s=0, delay_s=0
        )
        reports: list[TaskHealth] = []
        checker = Checker((check,), task, pid, reports.append, Listeners(None))
        checker.start()
        try:
            wait_until("it is made", lambda: reports)
        finally:
            checker.stop()
        said = reports[0].healths[0].last_failure_cause
        assert said == "exit code 7: 65534\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1"
    finally:
        engine.remove(name)
