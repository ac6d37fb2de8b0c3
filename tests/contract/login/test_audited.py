"""Proofs, right and wrong, as the audit log has them: names and kinds, and never a secret."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.access.asked import Asked
from mesos_gpu.access.guesses import Guesses
from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings
from mesos_gpu.adapters.proofs.htpasswd import Htpasswd
from mesos_gpu.adapters.proofs.passwords import Passwords
from mesos_gpu.adapters.proofs.prover import Prover
from mesos_gpu.model.access.record import AuditRecord
from tests.contract.login.rig import LoginRig, TokenStore, basic, id_of
from tests.contract.login.test_passwords import line, write


class Kept:
    """A server that takes tokens and passwords, its log and where that is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "audit"
        self.trail = AuditLog(AuditSettings(self.directory))
        self.tokens, wrong = TokenStore(), Guesses()
        write(directory / "htpasswd", line("ann", "secret"))
        provers: list[Prover] = [self.tokens.prover(), Passwords(Htpasswd(directory / "htpasswd"), wrong)]
        self.rig = LoginRig(provers, guesses=wrong, audit=self.trail)

    def last(self) -> AuditRecord:
        (_, record), *_ = self.trail.search(Asked(), limit=1, cursor="").records
        return record

    def text(self) -> str:
        return "".join(path.read_text() for path in self.directory.glob("*.jsonl"))

    def close(self) -> None:
        self.rig.close()
        self.trail.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    kept.close()


def test_a_wrong_password_is_on_record_by_the_name_that_it_claims(kept: Kept) -> None:
    assert kept.rig.call("GET", "/v1/jobs", headers=basic("ann", "Tr0ub4dor")).status_code == 401
    record = kept.last()
    assert (record.who, record.proof, record.proved) == ("ann", "password", False)
    assert (record.what, record.status, record.reason) == ("GET /v1/jobs", 401, "unauthenticated")
    assert "Tr0ub4dor" not in kept.text()


def test_login_is_on_record(kept: Kept) -> None:
    body = {"name": "ann", "password": "secret"}
    assert kept.rig.call("POST", "/v1/session", json=body).status_code == 201
    record = kept.last()
    assert (record.what, record.status, record.on) == ("POST /v1/session", 201, ("name:ann",))


def test_tokens_are_on_record_by_their_ids(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = kept.tokens.make("bob")
    secret = token.rpartition("_")[2]
    for path in ("/v1/jobs/none", f"/v1/tokens/{token}"):
        assert kept.rig.call("DELETE", path, token).status_code in (403, 404)
        record = kept.last()
        assert (record.who, record.proof, record.proved) == ("bob", f"token:{id_of(token)}", True)
    assert record.on == (f"token:mgpu_{id_of(token)}_***",)
    kept.tokens.revoke(token)
    headers = {"X-Request-Id": token, "X-Forwarded-For": token}
    assert kept.rig.call("POST", f"/v1/{token}?by={token}", token, headers=headers).status_code == 401
    record = kept.last()
    assert (record.proof, record.proved, record.status) == ("token", False, 401)
    assert secret not in kept.text()
    lines = [each.getMessage() for each in caplog.records if each.name.startswith("mesos_gpu")]
    assert lines
    assert not [line for line in lines if secret in line]
