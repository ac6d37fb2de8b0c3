"""A Mesos master's HTTP interfaces, used in an operator's name."""

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
_MAX_SAID: Final = 300  # characters of an answer that messages quote
_MASTER: Final = click.option(
    "--master",
    required=True,
    metavar="HOST:PORT",
    envvar="MESOS_GPU_MASTER",
    help="Address of the leading Mesos master.",
)
_CREDENTIALS: Final = click.option(
    "--mesos-credentials",
    "credentials",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with a principal that has this right at the master, and its secret.",
)


class Master:
    """A Mesos master, accessed with an operator's credentials.

    Args:
        address: HOST:PORT, optionally with a scheme.
        credentials: File of principal and secret; None for no authentication.

    Raises:
        BadConfiguration: The file cannot be used.
    """

    def __init__(self, address: str, credentials: Path | None) -> None:
        proof = read(credentials) if credentials else None
        self.principal = proof.principal if proof else None
        header = {"Authorization": proof.header} if proof else {}
        tls = AgentTls.from_environment(os.environ)
        self._daemon = Daemon("master", address.partition("://")[2] or address, tls, header)

    def get(self, path: str, key: str) -> Any:
        """Return the value of a key in the answer of a GET request.

        Raises:
            Unavailable, BadConfiguration: See `call`.
        """
        return self._read(self._answer("GET", path, b""), key)

    def call(self, order: Mapping[str, Any]) -> bytes:
        """Send a call of the operator API (include/mesos/v1/master/master.proto); return the body of the answer.

        Raises:
            Unavailable: The master does not answer, does not lead, or is no master.
            BadConfiguration: The principal lacks the right.
            Conflict: The master refuses the call.
        """
        return self._answer("POST", "/api/v1", json.dumps(order).encode())

    def told(self, kind: str) -> Any:
        """Return the answer to a call without arguments, such as GET_QUOTA, from the key of that name.

        Raises:
            Unavailable, BadConfiguration: See `call`.
        """
        return self._read(self.call({"type": kind}), kind.lower())

    def _read(self, body: bytes, key: str) -> Any:
        try:
            return parsed(body)[key]
        except (ValueError, KeyError, TypeError) as error:
            raise Unavailable(
                f"{self._daemon.endpoint} is not a Mesos master",
                remedy="give the master's HOST:PORT with --master",
            ) from error

    def _answer(self, method: str, path: str, body: bytes) -> bytes:
        """Send a request and return the answer's body, or raise the error for its status."""
        endpoint = self._daemon.endpoint
        try:
            status, answer = self._daemon.ask(method, path, body, self._daemon.authorization)
        except OSError as error:
            what = f"the master {endpoint} does not answer: {error}"
            raise Unavailable(
                what, remedy="check that it runs, and that --master is its HOST:PORT"
            ) from error
        if status in (200, 202):
            return answer
        text = answer[:_MAX_SAID].decode(errors="replace")
        if status in (401, 403):
            raise BadConfiguration(
                f"the master {endpoint} refuses: {status}",
                remedy="give the credentials of a principal with this right: --mesos-credentials FILE",
            )
        if status in (307, 503):
            raise Unavailable(
                f"{endpoint} is not the leading master", remedy="give the leading master with --master"
            )
        if status in (400, 409):
            raise Conflict(f"the master {endpoint} refuses: {text}", remedy="fix what it names, then retry")
        raise Unavailable(
            f"the master {endpoint} answers {status}: {text}", remedy="look at the master's log"
        )


def master_options(function: _F) -> _F:
    """Add --master and --mesos-credentials to a command, as `master` and `credentials`."""
    return _MASTER(_CREDENTIALS(function))
