"""Check of how a Mesos agent or master authenticates callers, and what its access control lists leave open.

It is asked for its state and flags without credentials; nothing is changed. Sources: docs/{authentication,
authorization}.md of Mesos 1.11.
"""

import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from isolator.agent.flags import flags_of
from isolator.agent.http import HttpConnection
from isolator.agent.tls import AgentTls
from isolator.node.findings import Finding, Host, Level
from mesos_gpu.errors import Unavailable
from mesos_gpu.wire.body import parsed

MASTER, AGENT = "master", "names"  # names of checks
AGENTS: Final = "agents"
ANSWER_S: Final = 10.0
MAX_SHOWN: Final = 5
DOCS: Final = "docs/security.md"
_JSON: Final = {"Content-Type": "application/json", "Accept": "application/json"}
#: Flags that name files with secrets.
_FILES: Final = ("credential", "credentials", "http_credentials", "jwt_secret_key")
#: Flags that have to be true, and what a caller may do without them.
_ASKS: Final[Mapping[str, Mapping[str, str]]] = {
    MASTER: {
        "authenticate_frameworks": "anyone who reaches it may register a framework by libprocess",
        "authenticate_http_frameworks": "anyone who reaches it may register a framework, and take over another",
        "authenticate_agents": "anyone who reaches it may register as an agent, and gets tasks with their environments",
    },
    AGENT: {
        "authenticate_http_executors": "anyone who reaches it may send updates in the name of executors",
    },
}
_REMEDIES: Final = {
    "authenticate_http_executors": "--authenticate_http_executors --jwt_secret_key=FILE "
    "--http_authenticators=basic,jwt, of a Mesos that was built with OpenSSL",
}
_NOT_PERMISSIVE: Final = re.compile(r'"?permissive"?\s*:\s*false')
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # nosec B104 # addresses to compare with, not to bind


@dataclass(frozen=True, slots=True)
class Daemon:
    """A Mesos master or agent.

    Attributes:
        kind: Name of its check.
        endpoint: Address as HOST:PORT.
    """

    kind: str
    endpoint: str
    tls: AgentTls | None = None
    authorization: Mapping[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: bytes, header: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer.

        Raises:
            OSError: No answer came.
        """
        connection = HttpConnection(self.endpoint, ANSWER_S, self.tls)
        try:
            response = connection.request(method, path, body, {**_JSON, **header})
            return response.status, response.read()
        finally:
            connection.close()

    def open_to_all(self) -> list[str]:
        """Return the paths that are answered without credentials.

        Raises:
            OSError: The daemon does not answer at all.
        """
        requests = (("GET", "/state", b""), ("POST", "/api/v1", b'{"type": "GET_FLAGS"}'))
        return [
            path for method, path, body in requests if self.ask(method, path, body, {})[0] not in (401, 403)
        ]


def looked_at(daemon: Daemon, flags: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings on a daemon's access control, given its flags.

    Raises:
        OSError: The daemon does not answer.
    """
    check, wrong = daemon.kind, False
    if paths := daemon.open_to_all():
        wrong = True
        where = " on every address of its host" if flags.get("ip", "") in _EVERYWHERE else ""
        text = f"{daemon.endpoint} answers {', '.join(paths)} to anyone who reaches it{where}, without credentials"
        which = "credentials" if check == MASTER else "http_credentials"
        remedy = f"--authenticate_http_readonly --authenticate_http_readwrite --{which}=FILE; {DOCS}"
        yield Finding(check, Level.WARN, text, remedy)
    for flag, why in _ASKS[check].items():
        if flags.get(flag) != "true":
            wrong = True
            remedy = _REMEDIES.get(flag, f"--{flag} --credentials=FILE")
            yield Finding(check, Level.WARN, f"{daemon.endpoint}: {why}", f"{remedy}; {DOCS}")
    if not _NOT_PERMISSIVE.search(flags.get("acls", "")):
        wrong = True
        how = "allow what they do not list" if flags.get("acls") else "are not set"
        text = f"{daemon.endpoint}: its access control lists {how}: every principal may do everything"
        yield Finding(check, Level.WARN, text, f'--acls=file:///FILE with "permissive": false; {DOCS}')
    if not wrong:
        yield Finding(
            check,
            Level.OK,
            f"{daemon.endpoint} asks for credentials, and its access control lists refuse what they do not list",
        )


def secret_files(host: Host, flags: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings on the modes of secret files that an agent of this host is started with."""
    for flag in _FILES:
        path = Path(flags.get(flag, "").removeprefix("file://"))
        if not path.is_absolute() or not host.below(path).exists():
            continue
        mode = stat.S_IMODE(host.below(path).stat().st_mode)
        if mode & 0o077:
            text = f"{path} (--{flag}) has mode {mode:04o}: others may have read its secrets"
            yield Finding(AGENT, Level.FAIL, text, f"chmod 600 {path}, and choose new secrets")


def of_master(
    endpoint: str,
    authorization: Mapping[str, str],
    tls: AgentTls | None = None,
    more: Callable[[Daemon, Mapping[str, str]], Iterator[Finding]] = lambda *_: iter(()),
) -> Iterator[Finding]:
    """Yield the findings on a master, and on its agents as seen from this host.

    Args:
        endpoint: Address as HOST:PORT.
        authorization: HTTP header of a principal that may see flags and agents.
        more: Further checks of a master whose flags are known.
    """
    master = Daemon(MASTER, endpoint, tls, authorization)
    try:
        flags = flags_of(endpoint, authorization=authorization, tls=tls)
        yield from looked_at(master, flags)
        yield from _agents(master)
        yield from more(master, flags)
    except Unavailable as error:
        what = error.what.replace("the agent ", "the master ")
        remedy = (
            "give --mesos-credentials=FILE of a principal that may view flags by its access control lists"
        )
        if isinstance(error.__cause__, OSError):
            remedy = "check that it runs, and that --master names its HOST:PORT"
        yield Finding(MASTER, Level.FAIL, what, remedy)
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield Finding(
            MASTER, Level.FAIL, f"{endpoint}: {error}", "check that it is a Mesos master, and read its log"
        )


def _agents(master: Daemon) -> Iterator[Finding]:
    """Yield a finding on agents that answer callers without credentials."""
    status, body = master.ask("GET", "/slaves", b"", master.authorization)
    if status != 200:
        text = f"{master.endpoint} does not list its agents: status {status}"
        yield Finding(AGENTS, Level.WARN, text, "let the principal of --mesos-credentials see /slaves")
        return
    agents: list[dict[str, Any]] = parsed(body)["slaves"]
    answering, silent = [], []
    for agent in agents:
        endpoint = str(agent["pid"]).rpartition("@")[2]
        try:
            if Daemon(AGENT, endpoint, master.tls).open_to_all():
                answering.append(endpoint)
        except OSError:
            silent.append(endpoint)
    if answering:
        more = f" and {len(answering) - MAX_SHOWN} more" if len(answering) > MAX_SHOWN else ""
        text = f"{', '.join(answering[:MAX_SHOWN])}{more}: anyone who reaches them can run commands as root"
        remedy = f"--authenticate_http_readonly --authenticate_http_readwrite --http_credentials=FILE; {DOCS}"
        yield Finding(AGENTS, Level.WARN, text, remedy)
    else:
        seen = len(agents) - len(silent)
        yield Finding(AGENTS, Level.OK, f"{seen} of {len(agents)} answer from here, and ask for credentials")
