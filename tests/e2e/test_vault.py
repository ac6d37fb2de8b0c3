"""Secrets from Vault on a real Mesos: jobs and apps have them, and wait where Vault gives none."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of, kill_all
from tests.conftest import wait_until
from tests.vaults import DENIED, SEALED, TOKEN, VALUE, Scripted, keeps, serving

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: hosts take secrets where tasks are kept apart"),
]
SMALL = {"cpus": 0.1, "mem_mib": 32, "kill_grace_s": 0.1}
COMMAND = 'printf %s "$HF_TOKEN" | sha256sum; echo done'
SAYS = [f"{hashlib.sha256(VALUE.encode()).hexdigest()}  -", "done"]


@pytest.fixture(scope="module")
def vault() -> Iterator[Scripted]:
    with serving(Scripted()) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def stack(open_directory: Path, vault: Scripted) -> Iterator[Stack]:
    token = open_directory / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    arguments = ["--vault-url", f"http://127.0.0.1:{vault.port}", "--vault-token-file", str(token)]
    with Stack(
        open_directory / "stack", [NodeSpec(0)], scheduler_arguments=[*arguments, "--report-interval", "0.5"]
    ) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack, vault: Scripted) -> Iterator[Client]:
    vault.answer = keeps({"value": VALUE, "token": "other"})
    with client_of(stack, 0) as client:
        yield client
        kill_all(client)


def submit(client: Client, source: str = "team/hf") -> str:
    job = {**SMALL, "command": COMMAND, "secrets": {"HF_TOKEN": source}}
    return str(client.submit(job)["id"])


def ends(client: Client, job: str) -> None:
    wait_until("it has ended", lambda: client.job(job)["state"] == "finished", 60)
    assert output(client, job) == SAYS


def output(client: Client, job: str) -> list[str]:
    return client.logs(job, stream="stdout", offset=0, length=10_000)["data"].splitlines()


def waits(client: Client, job: str, *words: str) -> None:
    def says() -> bool:
        summary = client.why(job)["summary"]
        return "waits for its secrets" in summary and all(word in summary for word in words)

    wait_until(f"it waits: {words}", says)
    assert VALUE not in json.dumps(client.why(job))
    assert TOKEN not in json.dumps(client.why(job))


def test_vault_gives_a_job_its_secret(client: Client) -> None:
    ends(client, submit(client))


@pytest.mark.parametrize(
    ("answer", "word"), [(SEALED, "sealed"), (DENIED, "token has expired"), ((500, b""), "answered 500")]
)
def test_vault_that_gives_nothing_keeps_a_job_waiting_until_it_does(
    client: Client, vault: Scripted, answer: tuple[int, bytes], word: str
) -> None:
    vault.answer = lambda _: answer
    job = submit(client)
    waits(client, job, "team/hf", word)
    vault.answer = keeps({"value": VALUE})
    ends(client, job)


def test_vault_secrets_that_are_missing_are_named(client: Client, vault: Scripted) -> None:
    job, field = submit(client, "team/none"), submit(client, "team/hf#nothing")
    waits(client, job, "Vault has no secret team/none of its store secret")
    waits(client, field, "the secret team/hf in Vault has no field nothing")
    ends(client, submit(client))  # they hold up no others
    vault.answer = lambda path: keeps({"value": VALUE})(path.replace("team/none", "team/hf"))
    ends(client, job)


def test_vault_gives_an_app_its_secret(client: Client, stack: Stack) -> None:
    app = {
        "id": "/vault",
        "cmd": f"{COMMAND}; sleep 600",
        "cpus": 0.1,
        "mem": 32,
        "env": {"HF_TOKEN": {"secret": "hf"}},
        "secrets": {"hf": {"source": "team/hf"}},
    }
    assert requests.post(f"{stack.url}/v2/apps", json=app, timeout=30).status_code == 201
    wait_until("it runs", lambda: client.jobs(states=["running"]))
    (job,) = client.jobs(states=["running"])
    wait_until("it has said it", lambda: output(client, job["id"]) == SAYS)
    told = requests.get(f"{stack.url}/v2/apps//vault", timeout=30).text
    assert VALUE not in told
    assert requests.delete(f"{stack.url}/v2/apps//vault", timeout=30).ok
