"""A cluster with authentication and authorization: files with secrets and access control lists, and the flags that name
them.
"""

import json
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from mesos_gpu.adapters.credentials import VARIABLE, Credential, read
from mesos_gpu.install import mesos_access
from mesos_gpu.install.mesos_access import (
    AGENT,
    EXECUTOR,
    FRAMEWORK,
    HTTP,
    OPERATOR,
    acls_of_agents,
    acls_of_master,
)
from mesos_gpu.libmesos import fetch


@dataclass(frozen=True, slots=True)
class Secure:
    """Credential files and access lists in a private directory, and the flags that name them.

    Attributes:
        directory: Directory of the files, mode 0700.
        roles: Roles that the framework may register with, and reserve for.
    """

    directory: Path
    roles: tuple[str, ...] = ("*",)

    def write(self) -> None:
        """Generate secrets and write all files.

        Raises:
            Unavailable: SASL lacks CRAM-MD5, so that agents cannot authenticate.
        """
        fetch.check_mechanism()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        own = mesos_access.credentials()
        user = pwd.getpwuid(os.geteuid()).pw_name
        self._write("framework", own[FRAMEWORK])
        self._write("agent", own[AGENT])
        self._write("operator", own[OPERATOR])
        self._write("executor", own[EXECUTOR])
        self._write("known-to-master", mesos_access.known_to_master(own))
        self._write("known-to-agents", mesos_access.known_to_agents(own))
        self._write("acls-of-master", acls_of_master(user, self.roles))
        self._write("acls-of-agents", acls_of_agents(user))
        self._write("executors-key", mesos_access.key_of_tokens())

    def _write(self, name: str, content: object) -> None:
        path = self.directory / name
        path.unlink(missing_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)

    @property
    def framework(self) -> Path:
        """Credential file of `FRAMEWORK`, for the scheduler's --mesos-credentials."""
        return self.directory / "framework"

    @property
    def operator(self) -> Path:
        """Credential file of `OPERATOR`, for people."""
        return self.directory / "operator"

    def credential(self) -> Credential:
        """Return the credential with which the cluster's owner queries it.

        Raises:
            BadConfiguration: See `credentials.read`.
        """
        return read(self.operator)

    def master_flags(self) -> dict[str, str]:
        """Return the flags of masters."""
        return {
            **HTTP,
            "authenticate_frameworks": "true",
            "authenticate_agents": "true",
            "authenticate_http_frameworks": "true",
            "http_framework_authenticators": "basic",
            "credentials": str(self.directory / "known-to-master"),
            "acls": f"file://{self.directory / 'acls-of-master'}",
        }

    def agent_flags(self) -> dict[str, str]:
        """Return the flags of agents."""
        return {
            **HTTP,
            "http_credentials": str(self.directory / "known-to-agents"),
            "http_authenticators": "basic,jwt",
            "credential": str(self.directory / "agent"),
            "acls": f"file://{self.directory / 'acls-of-agents'}",
            "authenticate_http_executors": "true",
            "jwt_secret_key": str(self.directory / "executors-key"),
        }

    def executor_environment(self) -> dict[str, str]:
        """Return the variables that agents set for executors."""
        return {VARIABLE: str(self.directory / "executor")}

    def scheduler_arguments(self) -> list[str]:
        """Return the options of the scheduler."""
        return ["--mesos-credentials", str(self.framework)]
