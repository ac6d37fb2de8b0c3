"""Commands, sessions and ports of jobs with an image, by Mesos and by Docker: the same as on the host."""

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import command
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save
from tests.e2e.channel.test_exec import EVERY_BYTE, nap, of_this, until
from tests.e2e.channel.test_sessions import killed_at_end, terminal, words
from tests.e2e.channel.test_squatters import OTHER, exported, jobs_of, let_listen, running, squatting
from tests.e2e.hosts.test_control_ports import EACH_IMAGE
from tests.e2e.hosts.test_image_jobs import MODES
from tests.kernel.conftest import needs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        bool(dockerd.missing()), reason=f"needs images, an engine and a static busybox: {dockerd.missing()}"
    ),
]
MODE = "cgroup2"  # of version 1 are the host's in other tests
APPLETS = ["sh", "cat", "echo", "id", "ls", "sleep", "httpd", "grep", "test", "mkdir", "tty"]


@pytest.fixture(scope="module")
def images(open_directory: Path) -> Path:
    directory = open_directory / "images"
    save(directory, "plain:1", [busybox_layer(dockerd.busybox(), APPLETS)], {"Env": ["PATH=/bin"]})
    return directory


@pytest.fixture(scope="module")
def stack(open_directory: Path, images: Path, unstarted_engine: dockerd.Dockerd) -> Iterator[Stack]:
    needs(MODE)
    given = {"MESOS_GPU_DOCKER_SOCKET": str(unstarted_engine.socket), "MESOS_GPU_ISOLATION": MODE}
    with Stack(
        open_directory / MODE,
        [NodeSpec(2)],
        images=images,
        devices=MODES[MODE],
        executor_environment=given,
    ) as stack:
        with Client(stack.url) as client:
            wait_until("the node reports", lambda: len(client.gpus()) == 2)
        yield stack


@pytest.mark.parametrize("form", EACH_IMAGE, indirect=True)
def test_exec_and_port_forward_work_in_an_image(stack: Stack, form: str) -> None:
    with Client(stack.url) as client:
        serve = 'cd "$MESOS_SANDBOX"; id > who; ls /dev >> who; exec httpd -f -p 127.0.0.1:$PORT0 -h .'
        asked = {
            "name": "web",
            "image": "plain:1",
            "container_engine": form,
            "command": serve,
            "ports": [0],
        }
        job = client.submit({**asked, "gpus": 1, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it runs", lambda: client.job(job)["state"] == "running")
        port = client.tasks(job)[0]["ports"][0]
    same = 'cd "$MESOS_SANDBOX"; cat who; echo --; id; ls /dev'
    ran = command("exec", "--url", stack.url, job, "--", "sh", "-c", same)
    own, _, of_command = ran.stdout.partition(b"--\n")
    assert (own == of_command, b"nvidia" in own) == (True, True), ran
    data = EVERY_BYTE * 8192
    ran = command("exec", "--url", stack.url, job, "-i", "--", "cat", data=data)
    assert (ran.stdout == data, ran.returncode) == (True, 0), ran.stderr
    argv = words(stack, "port-forward", job, f"0:{port}")
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as forwards:
        try:
            assert forwards.stderr is not None
            place = forwards.stderr.readline().split()[1]
            with urllib.request.urlopen(f"http://{place}/who", timeout=60) as answer:
                assert answer.read() == own
        finally:
            forwards.kill()
    with subprocess.Popen(
        words(stack, "exec", job, "--", "sh", "-c", f"echo ready; exec sleep {nap(86420)}"),
        stdout=subprocess.PIPE,
    ) as lost:
        assert lost.stdout is not None
        assert lost.stdout.readline() == b"ready\n"
        assert of_this(nap(86420))
        lost.kill()
    wait_until("nothing is left", lambda: not of_this(nap(86420)))
    with Client(stack.url) as client:
        client.kill(job)
        wait_until("it has ended", lambda: client.job(job)["ended_at"])


@pytest.mark.parametrize("form", ["mesos", pytest.param("docker", marks=pytest.mark.long)], indirect=True)
def test_port_of_an_image_leads_to_its_task_alone(stack: Stack, form: str) -> None:
    serve = 'cd "$MESOS_SANDBOX"; echo job > who; until test -e go; do sleep 0.05; done; exec httpd -f -p $PORT0 -h .'
    check = {"protocol": "MESOS_HTTP", "portIndex": 0, "intervalSeconds": 1, "path": "/who"}
    docker = {"image": "plain:1"}
    definition = {
        "id": f"/{form}",
        "cmd": serve,
        "cpus": 0.1,
        "mem": 64,
        "container": {"type": form.upper(), "docker": docker},
        "portDefinitions": [{"port": 0}],
        "healthChecks": [check],
        "labels": {"HAPROXY_0_VHOST": "image.example.org"},
    }
    with Client(stack.url) as client:
        client.call("POST", "/v2/apps", dict, body=definition)
        job = wait_until("it is there", lambda: jobs_of(client, f"/{form}"))
        port = running(client, job)
        forwards = words(stack, "port-forward", job, f"0:{port}")
        with (
            subprocess.Popen(forwards, stderr=subprocess.PIPE, text=True) as ran,
            killed_at_end(ran),
        ):
            assert ran.stderr is not None
            place = ran.stderr.readline().split()[1]
            with squatting(port) as squatter:
                with pytest.raises(OSError, match=r"closed|reset"):
                    urllib.request.urlopen(f"http://{place}/who", timeout=60)
                assert f"of uid {OTHER}, listens at port {port}" in ran.stderr.readline()
                wait_until("its executor saw it", lambda: client.tasks(job)[0]["ports_problem"])
                assert squatter.requests == []
                assert client.job(job)["healthy"] is not True
            let_listen(stack, job, 'cd "$MESOS_SANDBOX"; touch go')
            wait_until("it is well", lambda: client.job(job)["healthy"] is True)
            wait_until("it is served", lambda: f":{port} check" in exported(client))
            with urllib.request.urlopen(f"http://{place}/who", timeout=60) as answer:
                assert answer.read() == b"job\n"
        client.call("DELETE", f"/v2/apps/{form}", dict)


def copied(stack: Stack, name: str, *more: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Run `cp`, `ls` or `cat` for the second task of a gang."""
    return command(name, "--url", stack.url, "--rank", "1", *more, data=data)


@pytest.mark.parametrize("form", EACH_IMAGE, indirect=True)
def test_files_of_a_task_in_an_image(stack: Stack, form: str, tmp_path: Path) -> None:
    with Client(stack.url) as client:
        write = 'cd "$MESOS_SANDBOX"; mkdir out; echo "rank $RANK" > out/said; exec sleep 3600'
        asked = {"name": "gang", "image": "plain:1", "container_engine": form, "command": write}
        job = client.submit({**asked, "tasks": 2, "gpus": 1, "cpus": 0.1, "mem_mib": 64})["id"]
        wait_until("it runs", lambda: client.job(job)["state"] == "running")
    wait_until("it has written", lambda: copied(stack, "cat", f"{job}:out/said").stdout == b"rank 1\n")
    assert command("cat", "--url", stack.url, f"{job}:out/said").stdout == b"rank 0\n"
    assert copied(stack, "ls", f"{job}:out", "-q").stdout == b"said\n"
    assert {b"bin", b"mnt"} <= set(copied(stack, "ls", f"{job}:/", "-q").stdout.split())
    assert copied(stack, "cat", f"{job}:/etc/debian_version").returncode == 74, (
        "the host's is not in the image"
    )

    (tmp_path / "given").mkdir()
    (tmp_path / "given/every").write_bytes(EVERY_BYTE * 8192)
    went = copied(stack, "cp", str(tmp_path / "given"), f"{job}:")
    assert went.returncode == 0, went.stderr
    assert copied(stack, "cp", "-", f"{job}:given/more", data=EVERY_BYTE).returncode == 0
    own = 'cd "$MESOS_SANDBOX"; ls given; cat given/more given/every > both; test -O given/more && id -u'
    ran = command("exec", "--url", stack.url, job, "--rank", "1", "--", "sh", "-c", own)
    assert ran.stdout.split()[:2] == [b"every", b"more"], ran
    assert int(ran.stdout.split()[2]) != 0, "all is the job's user's"
    (tmp_path / "back").mkdir()
    here = copied(stack, "cp", f"{job}:given", str(tmp_path / "back"))
    assert here.returncode == 0, here.stderr
    assert (tmp_path / "back/given/every").read_bytes() == EVERY_BYTE * 8192
    assert copied(stack, "cat", f"{job}:both").stdout == EVERY_BYTE * 8193
    other = command("cat", "--url", stack.url, f"{job}:both")
    assert other.returncode == 74, "the first task has none of it"

    with Client(stack.url) as client:
        client.kill(job)
        wait_until("it has ended", lambda: client.job(job)["ended_at"])
    assert copied(stack, "cp", f"{job}:both", "-").stdout == EVERY_BYTE * 8193, "its agent keeps it"


@pytest.mark.parametrize("form", EACH_IMAGE, indirect=True)
def test_a_job_with_an_image_has_this_terminal(stack: Stack, form: str) -> None:
    options = ("--image", "plain:1", "--container-engine", form, "--cpus", "0.1", "--mem", "64MiB")
    with terminal(words(stack, "run", "--name", "tty", *options, "-it", "--", "sh")) as (keys, ran):
        until(keys, b"$ ")
        os.write(keys, b"test -t 0 && tty && echo terminal-$((40 + 2)); exit 6\n")
        assert b"\n/dev/pts/0\r\n" in until(keys, b"terminal-42\r\n")
        assert ran.wait(60) == 6
    with Client(stack.url) as client:
        jobs = [each for each in client.jobs() if each["name"] == "tty"]
        wait_until(
            "all have their code", lambda: {client.job(each["id"])["exit_code"] for each in jobs} == {6}
        )
