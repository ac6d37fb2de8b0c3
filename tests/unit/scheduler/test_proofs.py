"""Kinds of proof that the scheduler's options require."""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import click
import pytest

from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.access.caller import Proof
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.scheduler.options.authentication import AUTHENTICATION, AuthenticationOptions
from mesos_gpu.scheduler.options.options import Options
from mesos_gpu.scheduler.options.section import with_options
from mesos_gpu.scheduler.options.tls import TlsOptions
from mesos_gpu.scheduler.proofs.composed import local_socket, who_asks
from mesos_gpu.scheduler.proofs.kinds import kinds

FILE = Path("f")
NEAR = Proxies([ip_network("127.0.0.1/32")])
T, P, C, X, S = Proof.TOKEN, Proof.PASSWORD, Proof.CERTIFICATE, Proof.PROXY, Proof.SOCKET


def options(state: Path = FILE, tls: TlsOptions | None = None, **given: Any) -> Options:
    made = Options(
        "m:5050", state, "h", 8080, None, "*", "u", "n", 1.0, None, None, None, None, Permits(), "e", "m", "k",
        1.0, 1.0, tls=tls or TlsOptions(),
    )  # fmt: skip
    return replace(made, authentication=AuthenticationOptions(**given))


class Scheduler:
    """Return the parts of a scheduler that provers need."""

    access = AccessDocument()
    tokens: Mapping[str, Token] = {}

    def note_token_use(self, token_id: str, address: str) -> None:
        raise AssertionError(f"{token_id} of {address} was never made")


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ({}, ()),
        ({"auth": ()}, ()),
        ({"htpasswd": FILE}, (T, P, S)),
        ({"trusted_proxies": NEAR}, (T, X, S)),
        ({"socket": FILE}, (T, S)),
        ({"tls": TlsOptions(FILE, FILE, FILE)}, (T, C, S)),
        ({"auth": (S, T)}, (S, T)),
        ({"auth": (P,), "htpasswd": FILE, "trusted_proxies": NEAR}, (P,)),
    ],
)
def test_proof_kinds_are_those_listed_or_else_those_set_up(
    given: dict[str, Any], order: tuple[Proof, ...]
) -> None:
    assert kinds(options(**given)) == order


@pytest.mark.parametrize(
    ("kind", "missing"),
    [(P, "--htpasswd"), (C, "--tls-client-ca"), (X, "--trusted-proxy"), (Proof.OIDC, "--oidc-issuer")],
)
def test_proof_option_without_its_setup_is_refused(kind: Proof, missing: str) -> None:
    with pytest.raises(BadConfiguration) as error:
        kinds(options(auth=(T, kind)))
    assert f"which needs {missing}" in error.value.what


@pytest.mark.parametrize("auth", [(), (T,)])
def test_passwords_without_basic_proofs_are_refused(auth: tuple[Proof, ...]) -> None:
    """A named file shows that passwords are wanted: with --auth none each caller would have every right."""
    with pytest.raises(BadConfiguration) as error:
        kinds(options(auth=auth, htpasswd=FILE))
    assert error.value.what == "--htpasswd has no effect: --auth does not list password"


def test_local_socket_is_absent_without_proofs_unless_named(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert who_asks(options(state), Scheduler()) is None  # type: ignore[arg-type]
    assert local_socket(options(state)) is None
    assert local_socket(options(state, auth=(T,))) is None
    for given in ({"auth": (S,)}, {"auth": (X,), "trusted_proxies": Proxies(users=[33])}):
        made = local_socket(options(state, **given))
        assert made is not None
        assert made.path == tmp_path / "run" / "api.sock"
        made.close()
    assert not (tmp_path / "run" / "api.sock").exists()


def test_a_proxy_on_loopback_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    who = who_asks(options(auth=(X,), trusted_proxies=NEAR), Scheduler())  # type: ignore[arg-type]
    assert who is not None
    assert list(who.provers) == [X]
    assert "including tasks, can claim any name" in caplog.text


def parsed(*words: str) -> AuthenticationOptions:
    taken: list[dict[str, Any]] = []

    @click.command()
    @with_options(AUTHENTICATION.options)
    def command(**given: Any) -> None:
        taken.append(given)

    command.main(list(words), standalone_mode=False)
    section: AuthenticationOptions = AUTHENTICATION.take(taken[0])
    return section


def test_proof_options_are_read_from_the_command_line() -> None:
    given = parsed(
        "--auth", "socket,token", "--cert-map", "*@x=*", "--trusted-proxy", "10.0.0.0/30", "--trusted-proxy",
        "user:root", "--open-routes", "metrics",
    )  # fmt: skip
    assert given.auth == (S, T)
    assert given.cert_maps[0].name_of("ann@x") == "ann"
    assert given.trusted_proxies == Proxies((ip_network("10.0.0.0/30"),), (0,))
    assert given.open_routes == {"metrics"}
    assert parsed() == AuthenticationOptions()
    assert parsed("--open-routes", "none").open_routes == frozenset()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--auth", "token,passphrase"], "'passphrase' is not one of token"),
        (["--trusted-proxy", "10.0.0.1/8"], "is not an address, a network"),
        (["--trusted-proxy", "user:no-such-user"], "no such user"),
        (["--cert-map", "x"], "is not PATTERN=NAME"),
        (["--open-routes", "jobs"], "is not a list of ping, openapi, metrics"),
        (["--proxy-user-header", "X User"], "is not a valid header name"),
    ],
)
def test_proof_options_that_contradict_are_refused(words: list[str], told: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        parsed(*words)
    assert told in error.value.message
