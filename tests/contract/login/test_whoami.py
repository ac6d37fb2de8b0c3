"""`mesos-gpu whoami`, and what commands make of a refusal."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.adapters.proofs.local import LocalCallers
from mesos_gpu.api.http.sockets import LocalSocket
from mesos_gpu.cli import main
from mesos_gpu.model.access.caller import Narrowing
from tests.contract.login.rig import LoginRig, TokenStore
from tests.contract.rig import Rig

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def path(open_directory: Path) -> Path:
    return open_directory / f"run-{os.urandom(4).hex()}" / "api.sock"


@pytest.fixture
def rig(store: TokenStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoginRig]:
    for name in ("MESOS_GPU_URL", "MESOS_GPU_TOKEN", "MESOS_GPU_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    rig = LoginRig([store.prover(), LocalCallers()], local=LocalSocket(path))
    yield rig
    rig.close()


def said(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, words, env=environment)


def test_whoami_by_the_socket_is_the_kernel_s_user(rig: LoginRig, path: Path) -> None:
    done = said("whoami", "--url", f"unix:{path}")
    assert done.exit_code == 0, done.output
    assert f"{ME}, by the kernel of the scheduler's host\n" in done.output
    assert "roles: admin" in done.output
    assert "  access:write    change roles and bindings\n" in done.output
    assert said("ps", MESOS_GPU_URL=f"unix:{path}").exit_code == 0


def test_whoami_by_a_token_is_its_name(rig: LoginRig, store: TokenStore, tmp_path: Path) -> None:
    token = store.make("ann", narrowing=Narrowing(rights=("job:*",), queues=("default",)))
    done = said("whoami", "--url", rig.url, MESOS_GPU_TOKEN=token)
    assert "ann, by a token of the scheduler\nuntil " in done.output
    assert "this credential is restricted to:\n  rights: job:*\n  queues: default\n" in done.output
    file = tmp_path / "token"
    file.write_text(token + "\n")
    file.chmod(0o600)
    assert "ann, by a token" in said("whoami", "--url", rig.url, MESOS_GPU_TOKEN_FILE=str(file)).output
    file.chmod(0o644)
    refused = said("whoami", "--url", rig.url, MESOS_GPU_TOKEN_FILE=str(file))
    assert refused.exit_code == 78
    assert "others may have read it" in refused.output


def test_whoami_without_a_name_tells_the_ways_to_log_in(rig: LoginRig) -> None:
    done = said("whoami", "--url", rig.url)
    assert (
        done.output
        == "not authenticated\naccepted: token, socket; log in with mesos-gpu login, see its --help\n"
    )
    refused = said("ps", "--url", rig.url)
    assert refused.exit_code == 77
    assert "To fix: log in" in refused.output


def test_whoami_without_authentication_is_anybody() -> None:
    rig = Rig()
    try:
        done = said("whoami", "--url", rig.url)
        assert done.output == "anonymous: this scheduler runs without authentication\n"
    finally:
        rig.close()


def test_a_token_is_not_sent_where_it_could_be_read_on_the_way() -> None:
    refused = said("whoami", "--url", "http://192.0.2.1:8080", MESOS_GPU_TOKEN="mgpu_x")
    assert refused.exit_code == 78
    assert "it could be read on the network" in refused.output
    assert "mgpu_x" not in refused.output


def test_a_token_that_proves_nothing_is_said_in_words(rig: LoginRig, store: TokenStore) -> None:
    token = store.make("ann", life_s=-1)
    refused = said("ps", "--url", rig.url, MESOS_GPU_TOKEN=token)
    assert refused.exit_code == 77
    assert "the token has expired" in refused.output
