"""A master that a command asks in an operator's name, by its HTTP interfaces."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from isolator.agent.tls import AgentTls
from isolator.node.mesos_access import Daemon
from mesos_gpu.adapters.credentials import read
from mesos_gpu.errors import BadConfiguration, Conflict, Unavailable
from mesos_gpu.wire.body import parsed

_F = TypeVar("_F", bound=Callable[..., Any])
_MAX_SAID: Final = 300  # characters of what it answers
_MASTER: Final = click.option(
    "--master",
    required=True,
    metavar="HOST:PORT",
    envvar="MESOS_GPU_MASTER",
    help="The Mesos master that leads.",
)
_CREDENTIALS: Final = click.option(
    "--mesos-credentials",
    "credentials",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Principal and secret of who may do this there.",
)


class Master:
    """A Mesos master, asked by whoever the credentials prove."""

    def __init__(self, address: str, credentials: Path | None) -> None:
        """Nothing is asked yet.

        Args:
            address: HOST:PORT, also with a scheme before it.
            credentials: A file; None: no name is shown.

        Raises:
            BadConfiguration: The file cannot be used.
        """
        proof = read(credentials) if credentials else None
        self.principal = proof.principal if proof else None
        header = {"Authorization": proof.header} if proof else {}
        tls = AgentTls.from_environment(os.environ)
        self._daemon = Daemon("master", address.partition("://")[2] or address, tls, header)

    def get(self, path: str, key: str) -> Any:
        """What it has under a key of an answer.

        Raises:
            Unavailable, BadConfiguration: As of `call`.
        """
        return self._read(self._answer("GET", path, b""), key)

    def call(self, order: Mapping[str, Any]) -> bytes:
        """Send a call of the operator's API (include/mesos/v1/master/master.proto); what it answers.

        Raises:
            Unavailable: It does not answer, does not lead, or is no master.
            BadConfiguration: It does not let this principal do that.
            Conflict: It refuses: what it is asked for cannot be.
        """
        return self._answer("POST", "/api/v1", json.dumps(order).encode())

    def told(self, kind: str) -> Any:
        """What it answers a call without arguments, as GET_QUOTA, under the key of that name.

        Raises:
            Unavailable, BadConfiguration: As of `call`.
        """
        return self._read(self.call({"type": kind}), kind.lower())

    def _read(self, body: bytes, key: str) -> Any:
        try:
            return parsed(body)[key]
        except (ValueError, KeyError, TypeError) as error:
            raise Unavailable(
                f"{self._daemon.endpoint} is no Mesos master", remedy="name its HOST:PORT"
            ) from error

    def _answer(self, method: str, path: str, body: bytes) -> bytes:
        endpoint = self._daemon.endpoint
        try:
            status, said = self._daemon.ask(method, path, body, self._daemon.authorization)
        except OSError as error:
            what = f"the master {endpoint} does not answer: {error}"
            raise Unavailable(
                what, remedy="see that it runs, and that --master names its HOST:PORT"
            ) from error
        if status in (200, 202):
            return said
        text = said[:_MAX_SAID].decode(errors="replace")
        if status in (401, 403):
            raise BadConfiguration(
                f"the master {endpoint} refuses: {status}",
                remedy="name the file of a principal that its lists let do this: --mesos-credentials",
            )
        if status in (307, 503):
            raise Unavailable(f"{endpoint} is not the leading master", remedy="name the one that leads")
        if status in (400, 409):
            raise Conflict(
                f"the master {endpoint} refuses: {text}", remedy="change what it names, then again"
            )
        raise Unavailable(f"the master {endpoint} answers {status}: {text}", remedy="look at its log")


def master_options(function: _F) -> _F:
    """Give a command --master and --mesos-credentials, as `master` and `credentials`."""
    return _MASTER(_CREDENTIALS(function))
