"""Options about an issuer of OpenID Connect, and the prover made of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from mesos_gpu.access.claims import NameClaim, Rules
from mesos_gpu.access.jws import ALGORITHMS
from mesos_gpu.adapters.oidc.client import Client, TokenKind
from mesos_gpu.adapters.oidc.tokens import OidcTokens
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.access.caller import Proof
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.scheduler.options.authentication import AuthenticationOptions
from mesos_gpu.scheduler.options.identity.oidc import OIDC, OidcOptions
from mesos_gpu.scheduler.options.section import with_options
from mesos_gpu.scheduler.proofs.composed import who_asks
from mesos_gpu.scheduler.proofs.kinds import kinds
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore
from tests.unit.scheduler.test_exposure import options

ISSUER = "https://id.example.org/realms/x"


def parsed(*words: str) -> tuple[Result, list[OidcOptions]]:
    seen: list[OidcOptions] = []

    @click.command()
    @with_options(OIDC.options)
    def command(**given: Any) -> None:
        seen.append(OIDC.take(given))

    return CliRunner().invoke(command, words), seen


def test_oidc_issuer_alone_is_enough() -> None:
    result, (given,) = parsed("--oidc-issuer", ISSUER)
    assert result.exit_code == 0
    assert given == OidcOptions(ISSUER)
    prover = given.prover()
    assert prover.issuer.url == ISSUER
    assert prover.rules == Rules(ISSUER, frozenset({"mesos-gpu"}), frozenset({"mesos-gpu"}))
    assert prover.client == Client("mesos-gpu", "", "mesos-gpu")


def test_oidc_options_arrive_in_the_settings(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    words = f"""--oidc-issuer {ISSUER} --oidc-client-id web --oidc-client-secret-file {secret} --oidc-cli-client-id cli
        --oidc-audience a --oidc-audience b --oidc-authorized-party p --oidc-name-claim email --oidc-name-prefix id:
        --oidc-groups-claim roles --oidc-groups-prefix id- --oidc-require hd=example.org --oidc-algorithm ES256
        --oidc-clock-skew-s 5 --oidc-max-lifetime-s 600 --oidc-scopes openid,offline_access
        --oidc-cli-token access_token""".split()
    result, (given,) = parsed(*words)
    assert result.exit_code == 0, result.output
    prover = given.prover()
    assert prover.rules == Rules(
        ISSUER,
        frozenset({"a", "b"}),
        frozenset({"web", "cli", "p"}),
        NameClaim.EMAIL,
        "id:",
        "roles",
        "id-",
        {"hd": "example.org"},
        5,
        600,
    )
    assert prover.client == Client("web", "s3cret", "cli", ("openid", "offline_access"), TokenKind.ACCESS)
    assert "s3cret" not in repr(prover.client)


@pytest.mark.parametrize(
    "words",
    [
        ("--oidc-algorithm", "HS256"),
        ("--oidc-algorithm", "none"),
        ("--oidc-require", "hd"),
        ("--oidc-require", "=x"),
        ("--oidc-scopes", "profile"),
        ("--oidc-clock-skew-s", "-1"),
        ("--oidc-clock-skew-s", "nan"),
        ("--oidc-max-lifetime-s", "1e9"),
        ("--oidc-name-claim", "name"),
    ],
)
def test_oidc_options_that_weaken_the_check_are_refused(words: tuple[str, ...]) -> None:
    result, seen = parsed("--oidc-issuer", ISSUER, *words)
    assert (result.exit_code, seen) == (2, [])


def test_oidc_secret_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o644)
    with pytest.raises(BadConfiguration, match="others may have read it"):
        OidcOptions(ISSUER, oidc_client_secret_file=secret).prover()


def test_oidc_issuer_without_tls_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="could be read and changed"):
        OidcOptions("http://id.example.org").prover()


def test_oidc_proof_is_asked_beside_the_others() -> None:
    who = who_asks(replace(options(), oidc=OidcOptions(ISSUER)), fake_scheduler())
    assert who
    assert list(who.provers) == [Proof.TOKEN, Proof.OIDC, Proof.SOCKET]
    assert isinstance(who.provers[Proof.OIDC], OidcTokens)
    alone = replace(options(), authentication=AuthenticationOptions(auth=(Proof.OIDC,)))
    with pytest.raises(BadConfiguration, match="needs --oidc-issuer"):
        kinds(alone)


def fake_scheduler() -> Daemon:
    """Asked for tokens only when a request comes."""
    return Daemon(RecordingStore(), RecordingStore().load(), FakeDriver(), FakeClock(), Settings.of("e", "m"))


def test_oidc_issuer_makes_proofs_required() -> None:
    assert kinds(options()) == ()
    given = replace(options(), oidc=OidcOptions(ISSUER))
    assert kinds(given) == (Proof.TOKEN, Proof.OIDC, Proof.SOCKET)
    assert set(OidcOptions().oidc_algorithms) == set(ALGORITHMS)
