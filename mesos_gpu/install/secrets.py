"""Names, secrets and access control lists of a real cluster's Mesos: a directory of files for each kind of host."""

import json
from typing import Any, Final

from mesos_gpu.install import agent, master, mesos_access
from mesos_gpu.install.files import HostFile, variables

#: Credentials of the scheduler: readable by its user, so not below a directory of root only.
OF_SCHEDULER: Final = "/etc/mesos-gpu/mesos-credentials.json"
#: Target and owner of the files in each directory.
PLACES: Final = {
    "master": f"{agent.SECRETS}/ on each master, root:root 0600; master.env has its flags",
    "agent": f"{agent.SECRETS}/ on each agent, root:root 0600",
    "scheduler": f"{OF_SCHEDULER} on the scheduler's host, mesos-gpu:mesos-gpu 0600",
    "operator": "yours: for Mesos' own pages, doctor and teardown",
}


def files(roles: tuple[str, ...], *, tokens: bool) -> list[HostFile]:
    """Return all files with secrets, by their path below a directory that only its owner may enter.

    Args:
        roles: Mesos roles of the scheduler.
        tokens: Whether agents give executors tokens of their own, which needs a Mesos built with OpenSSL.
    """
    own = mesos_access.credentials()
    asks = {f"MESOS_{name.upper()}": value for name, value in master.AUTHENTICATION.items()}
    return [
        _document("master/master-credentials.json", mesos_access.known_to_master(own)),
        _document("master/master-acls.json", mesos_access.acls_of_master("root", roles)),
        _file(
            "master/master.env",
            variables(asks),
        ),
        _document("agent/agent-of-master.json", own[mesos_access.AGENT]),
        _document("agent/http-credentials.json", mesos_access.known_to_agents(own)),
        _document("agent/agent-acls.json", mesos_access.acls_of_agents("root", tokens=tokens)),
        _document("agent/executors.json", own[mesos_access.EXECUTOR]),
        *([_file("agent/executors-key", mesos_access.key_of_tokens())] if tokens else []),
        _document("scheduler/mesos-credentials.json", own[mesos_access.FRAMEWORK]),
        _document("operator/operator.json", own[mesos_access.OPERATOR]),
    ]


def _document(path: str, content: dict[str, Any]) -> HostFile:
    return _file(path, json.dumps(content, indent=1) + "\n")


def _file(path: str, text: str) -> HostFile:
    return HostFile(f"/{path}", text, 0o600)
