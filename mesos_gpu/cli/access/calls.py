"""What the commands of `mesos-gpu access` and `mesos-gpu token` ask the scheduler, as Python calls."""

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
    """The document of a scheduler that says who may do what. Raises what `Client` does."""

    def __init__(self, client: Client) -> None:
        """Use a client that somebody else closes."""
        super().__init__(client, KIND)

    def check(self, question: Mapping[str, Any]) -> AccessCheck:
        """Ask whether a name may do something."""
        return self._client.call("POST", f"{_ACCESS}/check", AccessCheck, body=question)

    def rights(self) -> AccessRights:
        """List all rights, and the roles that are always there."""
        return self._client.call("GET", f"{_ACCESS}/rights", AccessRights)


class TokenCalls:
    """The tokens of a scheduler. Raises what `Client` does."""

    def __init__(self, client: Client) -> None:
        """Use a client that somebody else closes."""
        self._client = client

    def all(self) -> Sequence[Token]:
        """List those that one may see, the newest first."""
        return self._client.call("GET", _TOKENS, Tokens)["tokens"]

    def create(self, request: Mapping[str, Any]) -> TokenMade:
        """Make one. Never repeated: nobody would know of the second."""
        return self._client.call("POST", _TOKENS, TokenMade, body=request)

    def revoke(self, token_id: str) -> Token:
        """End one."""
        return self._client.call("DELETE", f"{_TOKENS}/{quote(token_id, safe='')}", Token)
