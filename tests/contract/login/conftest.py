"""Tokens of a scheduler, and an issuer of OpenID Connect, anew for each test."""

from collections.abc import Iterator

import pytest

from mesos_gpu.testing.oidc.issuer import OidcIssuer
from tests.contract.login.rig import TokenStore


@pytest.fixture
def store() -> TokenStore:
    return TokenStore()


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    with OidcIssuer() as issuer:
        yield issuer
