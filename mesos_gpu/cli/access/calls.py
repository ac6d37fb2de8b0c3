"""What the commands of `mesos-gpu access` and `mesos-gpu token` ask the scheduler, as Python calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from mesos_gpu.api.spec.access import (
    Access,
    AccessCheck,
    AccessRights,
    AccessVersion,
    AccessVersions,
    Token,
    TokenMade,
    Tokens,
)
from mesos_gpu.cli.client import Client

_ACCESS: Final = "/v1/access"
_TOKENS: Final = "/v1/tokens"


class Documents:
    """The document of a scheduler. Raises what `Client` does."""

    def __init__(self, client: Client) -> None:
        """Use a client that somebody else closes."""
        self._client = client

    def latest(self) -> Access:
        """Read it."""
        return self._client.call("GET", _ACCESS, Access)

    def version(self, number: int) -> Access:
        """Read it as it was."""
        return self._client.call("GET", f"{_ACCESS}/versions/{number}", Access)

    def versions(self) -> Sequence[AccessVersion]:
        """List those that are kept, the newest first."""
        return self._client.call("GET", f"{_ACCESS}/versions", AccessVersions)["versions"]

    def put(self, document: Mapping[str, Any], *, force: bool) -> Access:
        """Change it as a whole; `version` of the document is the one that was read."""
        query = {"force": "true"} if force else {}
        return self._client.call("PUT", _ACCESS, Access, query, body=document)

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

    def all(self, name: str | None = None) -> Sequence[Token]:
        """List those that one may see, the newest first; with `name`, of that name."""
        return self._client.call("GET", _TOKENS, Tokens, {"name": name})["tokens"]

    def create(self, request: Mapping[str, Any]) -> TokenMade:
        """Make one. Never repeated: nobody would know of the second."""
        return self._client.call("POST", _TOKENS, TokenMade, body=request)

    def revoke(self, token_id: str) -> Token:
        """End one."""
        return self._client.call("DELETE", f"{_TOKENS}/{quote(token_id, safe='')}", Token)
