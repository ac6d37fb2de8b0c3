"""A cluster that asks everybody who they are, and lets nobody do more than their part: secrets in files, access control
lists, and the flags that say so to Mesos.

Four names: the framework (`FRAMEWORK`), the agents (`AGENT`), people (`OPERATOR`), and `EXECUTOR`, which may only see
an agent's flags. For all else an agent gives each executor a token that is good for that executor's own container.
Every action that no list names is refused (`permissive: false`). Sources: docs/{authentication,authorization}.md and
acls.proto of 1.11.0.
"""

import json
import os
import pwd
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mesos_gpu.adapters.credentials import VARIABLE, Credential, read
from mesos_gpu.errors import Unavailable

FRAMEWORK, AGENT, OPERATOR, EXECUTOR = "mesos-gpu", "mesos-gpu-agent", "operator", "mesos-gpu-executor"
_SECRET_BYTES: Final = 32  # of randomness
#: Where Debian's libsasl2-2 looks for mechanisms; libcrammd5 is of libsasl2-modules.
_SASL: Final = ("usr/lib/x86_64-linux-gnu/sasl2", "usr/lib64/sasl2", "usr/lib/sasl2")
_MECHANISM: Final = "libcrammd5.so"
_HTTP: Final = {
    "authenticate_http_readonly": "true",
    "authenticate_http_readwrite": "true",
}
#: What people may do besides what the framework may, by the name of what it is done to.
_OPERATORS: Final = {
    "teardown_frameworks": "framework_principals",
    "update_weights": "roles",
    "get_quotas": "roles",
    "update_quotas": "roles",
    "get_maintenance_schedules": "machines",
    "update_maintenance_schedules": "machines",
    "start_maintenances": "machines",
    "stop_maintenances": "machines",
    "get_maintenance_statuses": "machines",
    "drain_agents": "agents",
    "deactivate_agents": "agents",
    "reactivate_agents": "agents",
    "mark_agents_gone": "agents",
    "access_mesos_logs": "logs",
    "set_log_level": "level",
}
#: What the framework and people may see.
_VIEWS: Final = {
    "view_frameworks": "users",
    "view_executors": "users",
    "view_tasks": "users",
    "view_roles": "roles",
    "get_endpoints": "paths",
}
_ANY: Final = {"type": "ANY"}


@dataclass(frozen=True, slots=True)
class Secure:
    """The files, below a directory that only their owner may pass, and the flags that name them."""

    directory: Path
    role: str = "*"  # that the framework may register with, and reserve for

    def write(self) -> None:
        """Choose secrets and write every file anew.

        Raises:
            Unavailable: Agents cannot prove who they are here, for SASL lacks CRAM-MD5.
        """
        check_mechanism()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        words = {
            name: secrets.token_urlsafe(_SECRET_BYTES) for name in (FRAMEWORK, AGENT, OPERATOR, EXECUTOR)
        }
        own = {name: {"principal": name, "secret": word} for name, word in words.items()}
        user = pwd.getpwuid(os.geteuid()).pw_name
        self._write("framework", own[FRAMEWORK])
        self._write("agent", own[AGENT])
        self._write("operator", own[OPERATOR])
        self._write("executor", own[EXECUTOR])
        self._write("known-to-master", {"credentials": [own[FRAMEWORK], own[AGENT], own[OPERATOR]]})
        self._write("known-to-agents", {"credentials": [own[FRAMEWORK], own[OPERATOR], own[EXECUTOR]]})
        self._write("acls-of-master", acls_of_master(user, self.role))
        self._write("acls-of-agents", acls_of_agents(user))
        self._write("executors-key", secrets.token_hex(_SECRET_BYTES))

    def _write(self, name: str, content: object) -> None:
        path = self.directory / name
        path.unlink(missing_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(made, "w") as file:
            file.write(text)

    @property
    def framework(self) -> Path:
        """The file of `FRAMEWORK`: the scheduler's --mesos-credentials."""
        return self.directory / "framework"

    @property
    def operator(self) -> Path:
        """The file of `OPERATOR`, for people."""
        return self.directory / "operator"

    def credential(self) -> Credential:
        """Who starts the cluster and looks whether it is there.

        Raises:
            BadConfiguration: As of `credentials.read`.
        """
        return read(self.operator)

    def master_flags(self) -> dict[str, str]:
        """Flags of the master."""
        return {
            **_HTTP,
            "authenticate_frameworks": "true",
            "authenticate_agents": "true",
            "authenticate_http_frameworks": "true",
            "http_framework_authenticators": "basic",
            "credentials": str(self.directory / "known-to-master"),
            "acls": f"file://{self.directory / 'acls-of-master'}",
        }

    def agent_flags(self) -> dict[str, str]:
        """Flags of agents."""
        return {
            **_HTTP,
            "http_credentials": str(self.directory / "known-to-agents"),
            "http_authenticators": "basic,jwt",
            "credential": str(self.directory / "agent"),
            "acls": f"file://{self.directory / 'acls-of-agents'}",
            "authenticate_http_executors": "true",
            "jwt_secret_key": str(self.directory / "executors-key"),
        }

    def executor_environment(self) -> dict[str, str]:
        """Variables of agents for executors."""
        return {VARIABLE: str(self.directory / "executor")}

    def scheduler_arguments(self) -> list[str]:
        """Options of the scheduler."""
        return ["--mesos-credentials", str(self.framework)]


def acls_of_master(user: str, role: str) -> dict[str, Any]:
    """Access control lists of the master.

    Args:
        user: That executors run as.
        role: Of the framework.
    """
    return {
        "permissive": False,
        "register_frameworks": _one(FRAMEWORK, roles=_names(role)),
        "register_agents": [{"principals": _names(AGENT), "agents": _ANY}],
        "run_tasks": _one(FRAMEWORK, users=_names(user)),
        **_reservations(role),
        **_views(),
        **{action: _one(OPERATOR, **{on: _ANY}) for action, on in _OPERATORS.items()},
    }


def _reservations(role: str) -> dict[str, Any]:
    """A framework of the role * reserves nothing."""
    if role == "*":
        return {}
    return {
        "reserve_resources": _one(FRAMEWORK, roles=_names(role)),
        "unreserve_resources": _one(FRAMEWORK, reserver_principals=_names(FRAMEWORK)),
    }


def acls_of_agents(user: str) -> dict[str, Any]:
    """Access control lists of agents. None is about nested containers: an executor's token allows those in its own
    container, and no others.

    Args:
        user: That executors run as.
    """
    who = _names(FRAMEWORK, OPERATOR)
    return {
        "permissive": False,
        "run_tasks": _one(FRAMEWORK, users=_names(user)),
        "access_sandboxes": [{"principals": who, "users": _names(user)}],
        "view_containers": [{"principals": who, "users": _ANY}],
        **_views(),
        **{name: _one(OPERATOR, **{on: _ANY}) for name, on in _OPERATORS.items() if "log" in name},
    }


def _views() -> dict[str, Any]:
    """Flags name files, and hold no secrets: whoever has proved a name may see them."""
    who = _names(FRAMEWORK, OPERATOR)
    views = {action: [{"principals": who, on: _ANY}] for action, on in _VIEWS.items()}
    return {**views, "view_flags": [{"principals": _ANY, "flags": _ANY}]}


def _names(*names: str) -> dict[str, Any]:
    return {"values": list(names)}


def _one(principal: str, **on: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"principals": _names(principal), **on}]


def check_mechanism(root: Path = Path("/")) -> None:
    """See that agents can prove who they are.

    Raises:
        Unavailable: They cannot: libsasl2 does not find CRAM-MD5.
    """
    if not any((root / place / _MECHANISM).exists() for place in _SASL):
        raise Unavailable(
            f"agents cannot authenticate: SASL's {_MECHANISM} is not installed",
            remedy="apt-get install -y libsasl2-modules",
        )
