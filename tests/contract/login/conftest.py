"""Tokens of a scheduler, and an issuer of OpenID Connect, anew for each test."""

from collections.abc import Iterator

import pytest

from tests.contract.login.rig import TokenStore
from tests.doubles.oidc.issuer import OidcIssuer


@pytest.fixture
def store() -> TokenStore:
    return TokenStore()


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    with OidcIssuer() as issuer:
        yield issuer
