"""Addresses of the interface, and the protection that each needs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.tls.clients import Clients
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.access.caller import Proof
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.scheduler.options.authentication import AuthenticationOptions
from mesos_gpu.scheduler.options.options import Options
from mesos_gpu.scheduler.options.tls import TlsOptions
from mesos_gpu.scheduler.proofs.exposure import exposed

FILE = Path("f")
OWN: dict[str, Any] = {"tls_cert": FILE, "tls_key": FILE}
MUTUAL: dict[str, Any] = {**OWN, "tls_client_ca": FILE}
AWAY = "10.0.0.1"


def options(insecure: bool = False, **tls: Any) -> Options:
    return Options(
        "m:5050", FILE, "h", 8080, None, "*", "u", "n", 1.0, None, None, None, None, Permits(), "e", "m", "k",
        1.0, 1.0, insecure_no_authentication=insecure, tls=TlsOptions(**tls),
    )  # fmt: skip


REFUSED = {
    "open to all": (options(), "there is no authentication"),
    "open to all, with TLS": (options(**OWN), "there is no authentication"),
    "nobody is asked, whatever he shows": (
        replace(options(**MUTUAL), authentication=AuthenticationOptions(auth=())),
        "there is no authentication",
    ),
    "plain is no authentication": (options(insecure_plain_http=True), "there is no authentication"),
}
TAKEN = {
    "said so": (options(True), True, ["there is no authentication", "no TLS"]),
    "said so, with TLS": (options(True, **OWN), True, ["there is no authentication"]),
    "certificates": (options(**MUTUAL), False, []),
    "certificates or another proof": (options(**MUTUAL, tls_client="optional"), False, []),
    "tokens, with TLS": (
        replace(options(**OWN), authentication=AuthenticationOptions(auth=(Proof.TOKEN,))),
        False,
        [],
    ),
}


@pytest.mark.parametrize(("given", "why"), REFUSED.values(), ids=REFUSED)
def test_exposure_beyond_loopback_is_refused_without_protection(given: Options, why: str) -> None:
    for address in (AWAY, "0.0.0.0", "::", "fe80::1"):
        with pytest.raises(BadConfiguration) as caught:
            exposed(given, address)
        assert why in caught.value.what
    for address in ("127.0.0.1", "127.9.9.9", "::1"):
        exposure = exposed(given, address)
        assert (exposure.open_to_all, exposure.warnings) == (False, [])


@pytest.mark.parametrize(("given", "open_to_all", "said"), TAKEN.values(), ids=TAKEN)
def test_exposure_that_is_allowed_gives_its_warnings(
    given: Options, open_to_all: bool, said: list[str]
) -> None:
    exposure = exposed(given, AWAY)
    assert exposure.open_to_all is open_to_all
    assert [any(each in warning for warning in exposure.warnings) for each in said] == [True] * len(said)
    assert len(exposure.warnings) == len(said)


def test_authentication_without_tls_must_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesos_gpu.scheduler.proofs.exposure.is_authenticated", lambda _: True)
    with pytest.raises(BadConfiguration) as caught:
        exposed(options(), AWAY)
    assert "there is no TLS" in caught.value.what
    assert "--insecure-plain-http" in caught.value.remedy
    exposure = exposed(options(insecure_plain_http=True), AWAY)
    assert (exposure.open_to_all, len(exposure.warnings)) == (False, 1)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"tls_cert": FILE}, "--tls-key"),
        ({"tls_key": FILE}, "--tls-cert"),
        ({"tls_client_ca": FILE}, "--tls-cert"),
        ({**OWN, "tls_crl": FILE}, "--tls-client-ca"),
        ({**OWN, "tls_client": "required"}, "--tls-client-ca"),
    ],
)
def test_exposure_option_without_the_other_it_needs_is_refused(given: dict[str, Any], missing: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        TlsOptions(**given).files()
    assert f"without {missing}" in caught.value.what


def test_exposure_client_ca_alone_requires_certificates() -> None:
    assert TlsOptions().files() is None
    for word, clients in ((None, Clients.REQUIRED), ("optional", Clients.OPTIONAL)):
        files = TlsOptions(**MUTUAL, tls_client=word).files()
        assert files is not None
        assert files.clients is clients
