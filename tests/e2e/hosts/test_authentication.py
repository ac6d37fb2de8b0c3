"""A Mesos whose master and agents ask for credentials, over HTTP: jobs, images, fetching and logs work with them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from mesos_gpu.adapters.credentials import VARIABLE
from mesos_gpu.cli.client import Client, Refused
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, run
from tests.doubles import dockerd
from tests.doubles.images import busybox_layer, save

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
WHO, WORD = "mesos-gpu", "s3cret-word"
IMAGES = os.geteuid() == 0 and not dockerd.missing()


def private(path: Path, content: object) -> Path:
    path.touch(mode=0o600)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    one = {"principal": WHO, "secret": WORD}
    known = private(open_directory / "known", {"credentials": [one]})
    own = private(open_directory / "own", one)
    images = open_directory / "images"
    images.mkdir()
    if IMAGES:
        save(
            images,
            "box:1",
            [busybox_layer(dockerd.busybox(), ["sh", "echo", "env", "cat"])],
            {"Env": ["PATH=/bin"]},
        )
    flags = {
        "authenticate_http_readwrite": "true", "authenticate_http_readonly": "true", "http_credentials": str(known),
    }  # fmt: skip
    with Stack(
        open_directory / "stack",
        [NodeSpec(1, flags=flags)],
        images=images if IMAGES else None,
        devices="mesos" if IMAGES else "",
        executor_environment={VARIABLE: str(own)},
        scheduler_arguments=["--mesos-credentials", str(own)],
        master_flags={
            "authenticate_http_frameworks": "true",
            "http_framework_authenticators": "basic",
            "credentials": str(known),
        },
    ) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, 1) as client:
        yield client


def test_agent_and_master_ask_for_credentials(stack: Stack) -> None:
    agent, master = stack.cluster.agents[0].url, stack.cluster.master.url
    assert requests.get(f"{agent}/state", timeout=60).status_code == 401
    assert requests.post(f"{agent}/api/v1", json={"type": "GET_FLAGS"}, timeout=60).status_code == 401
    assert (
        requests.post(f"{master}/api/v1/scheduler", json={"type": "SUBSCRIBE"}, timeout=60).status_code == 401
    )


def test_job_runs_has_logs_and_sees_no_credentials(client: Client) -> None:
    state, text = run(client, command="env; echo and more", gpus=1)
    assert state == "finished"
    assert text.endswith("and more\n")
    assert VARIABLE not in text
    assert WORD not in text


def test_files_are_fetched_with_credentials(client: Client, open_directory: Path) -> None:
    source = open_directory / "note.txt"
    source.write_text("fetched\n")
    assert run(client, command="cat note.txt", fetch=[f"file://{source}"]) == ("finished", "fetched\n")


@pytest.mark.long  # with tokens of executors: test_secure_cluster.py
@pytest.mark.skipif(not IMAGES, reason=f"needs root and a static busybox: {dockerd.missing()}")
def test_an_image_runs_in_a_nested_container(client: Client) -> None:
    state, text = run(client, image="box:1", command="env; echo inside", gpus=1)
    assert (state, text.endswith("inside\n")) == ("finished", True)
    assert VARIABLE not in text


def test_logs_without_credentials_name_the_missing_option(stack: Stack, client: Client) -> None:
    job = client.submit({"command": "echo x", "cpus": 0.1, "mem_mib": 64})
    job = [job, *client.follow(job)][-1]
    words = stack.scheduler._arguments
    at = words.index("--mesos-credentials")
    word = stack.directory.parent / "word"
    word.touch(mode=0o600)
    word.write_text(WORD)
    other = [*words[:at], "--principal", WHO, "--secret-file", str(word), *words[at + 2 :]]
    stack.scheduler.kill()
    try:
        stack.scheduler._arguments = other
        stack.scheduler.start().wait(60)
        with pytest.raises(Refused, match="--mesos-credentials"):
            client.logs(job["id"], stream="stdout", offset=0, length=100)
    finally:
        stack.scheduler.kill()
        stack.scheduler._arguments = words
        stack.scheduler.start().wait(60)
