"""A token from its making to its end, proved by the scheduler's own prover."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from mesos_gpu.access.tokens import digest_of, parts_of, text_of
from mesos_gpu.adapters.proofs.tokens import Tokens
from mesos_gpu.api.login.who import Who
from mesos_gpu.engine.events import AccessChanged, TokenCreated
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.wire.access import document
from tests.conftest import wait_until
from tests.contract.access.rig import AccessRig

FIRST = text_of("0123456789ab", "x" * 43)
DOCUMENT = {
    "bindings": [
        {"names": ["boss"], "roles": ["admin"]},
        {"names": ["ann"], "roles": ["user"], "queues": ["research", "other"]},
    ]
}
JOB = {"command": "true", "queue": "research"}


def by_tokens(daemon: Daemon) -> Who:
    return Who([Tokens(lambda id: daemon.tokens.get(id), daemon.note_token_use)])


class ProvingRig(AccessRig):
    """Begins with a token of boss, as root on the scheduler's host would make it."""

    who = staticmethod(by_tokens)

    def __init__(self) -> None:
        super().__init__()
        made = document.decode(DOCUMENT)
        assert isinstance(made, AccessDocument)
        self.daemon.request(AccessChanged(made, 0)).result(60)
        id, secret = parts_of(FIRST) or ("", "")
        kept = Token(id, "boss", "5a17", digest_of("5a17", secret), 0.0, 0.0)
        self.daemon.request(TokenCreated(kept, 3600.0)).result(60)

    def send(self, token: str, verb: str, path: str, **more: Any) -> requests.Response:
        return self.call(None, verb, path, headers={"Authorization": f"Bearer {token}"}, **more)

    def token(self, by: str, **fields: Any) -> str:
        response = self.send(by, "POST", "/v1/tokens", json=fields)
        assert response.status_code == 201, response.text
        return str(response.json()["secret"])


@pytest.fixture
def rig() -> Iterator[ProvingRig]:
    rig = ProvingRig()
    yield rig
    rig.close()


def test_a_token_from_its_making_to_its_end(rig: ProvingRig) -> None:
    token = rig.token(FIRST, name="ann", rights=["job:run", "job:*:own"], queues=["research"])
    made = rig.send(token, "POST", "/v1/jobs", json=JOB)
    assert (made.status_code, made.json()["owner"]) == (201, "ann")
    elsewhere = rig.send(token, "POST", "/v1/jobs", json={**JOB, "queue": "other"})
    assert elsewhere.status_code == 403
    assert "this token does not allow it" in elsewhere.json()["error"]["message"]
    assert rig.send(token, "GET", "/v1/gpus").status_code == 403
    id, _ = parts_of(token) or ("", "")
    wait_until("its use is known", lambda: rig.daemon.tokens[id].used_from == "127.0.0.1")
    assert rig.send(FIRST, "DELETE", f"/v1/tokens/{id}").status_code == 200
    assert rig.send(token, "GET", "/v1/jobs").status_code == 401
    assert rig.send(FIRST, "GET", "/v1/jobs").json()["total"] == 1


def test_taking_a_binding_away_ends_what_a_token_may(rig: ProvingRig) -> None:
    token = rig.token(FIRST, name="ann")
    assert rig.send(token, "POST", "/v1/jobs", json=JOB).status_code == 201
    less = {"version": 1, "bindings": DOCUMENT["bindings"][:1]}
    assert rig.send(FIRST, "PUT", "/v1/access", json=less).status_code == 200
    refused = rig.send(token, "POST", "/v1/jobs", json=JOB)
    assert (refused.status_code, refused.json()["error"]["message"]) == (403, "ann lacks the right job:run")


def test_a_token_made_by_a_token_is_refused_when_that_is_revoked(rig: ProvingRig) -> None:
    first = rig.token(FIRST, name="ann")
    second = rig.token(first, rights=["job:see:own"])
    assert rig.send(second, "GET", "/v1/jobs").status_code == 200
    wider = rig.send(second, "POST", "/v1/tokens", json={})
    assert wider.status_code == 403
    id, _ = parts_of(first) or ("", "")
    assert rig.send(first, "DELETE", f"/v1/tokens/{id}").status_code == 200
    assert rig.send(second, "GET", "/v1/jobs").status_code == 401


def test_an_expired_token_and_a_changed_one_are_refused(rig: ProvingRig) -> None:
    token = rig.token(FIRST, name="ann", lifetime_s=1)
    changed = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert rig.send(changed, "GET", "/v1/jobs").status_code == 401
    wait_until("it expires", lambda: rig.send(token, "GET", "/v1/jobs").status_code == 401)
    assert rig.daemon.tokens[(parts_of(token) or ("", ""))[0]].expires_at <= time.time()


def test_token_secret_is_not_kept_told_or_logged(rig: ProvingRig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = rig.token(FIRST, name="ann", comment="CI")
    rig.send(token, "GET", "/v1/jobs")
    rig.send(token + "x", "GET", "/v1/jobs")
    _, secret = parts_of(token) or ("", "")
    told = rig.send(FIRST, "GET", "/v1/tokens").text + rig.send(FIRST, "GET", "/v1/status").text
    for text in (caplog.text, told, repr(rig.store.batches), repr(rig.daemon.tokens)):
        assert secret not in text
    assert "CI" in told


@pytest.mark.parametrize("path", ["docs/security.md", "docs/login.md"])
def test_examples_in_documents_are_documents(path: str) -> None:
    text = Path(__file__).parents[3].joinpath(path).read_text(encoding="utf-8")
    blocks = [block for block in text.split("```")[1::2] if "\nbindings:" in block]
    assert len(blocks) == 1, path
    lines = [line for line in blocks[0].splitlines()[1:] if not line.startswith(("$", "no:", "  to give"))]
    assert isinstance(document.decode(yaml.safe_load("\n".join(lines))), AccessDocument)
