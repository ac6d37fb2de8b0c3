"""Requests of the commands `mesos-gpu access` and `mesos-gpu token` to the scheduler."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from mesos_gpu.api.spec.access import (
    AccessCheck,
    AccessRights,
    Token,
    TokenMade,
    Tokens,
)
from mesos_gpu.cli.access.files import KIND
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.versioned.kept import Documents

_ACCESS: Final = "/v1/access"
_TOKENS: Final = "/v1/tokens"


class AccessDocuments(Documents):
    """Requests for the scheduler's access document, with an open client; they raise what `Client` raises."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, KIND)

    def check(self, question: Mapping[str, Any]) -> AccessCheck:
        """Ask whether a user has a right."""
        return self._client.call("POST", f"{_ACCESS}/check", AccessCheck, body=question)

    def rights(self) -> AccessRights:
        """Return all rights, and the built-in roles."""
        return self._client.call("GET", f"{_ACCESS}/rights", AccessRights)


class TokenCalls:
    """Requests for the scheduler's tokens, with an open client; they raise what `Client` raises."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> Sequence[Token]:
        """Return the tokens that the caller may see, newest first."""
        return self._client.call("GET", _TOKENS, Tokens)["tokens"]

    def create(self, request: Mapping[str, Any]) -> TokenMade:
        """Create a token. The request is never repeated, because the caller would not know of a second token."""
        return self._client.call("POST", _TOKENS, TokenMade, body=request)

    def revoke(self, token_id: str) -> Token:
        """Revoke a token."""
        return self._client.call("DELETE", f"{_TOKENS}/{quote(token_id, safe='')}", Token)
