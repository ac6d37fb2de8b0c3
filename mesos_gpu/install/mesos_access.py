"""Whom master and agents believe: names, and access control lists, for `mesos-gpu install` and the embedded cluster.

Four names: the framework (`FRAMEWORK`), the agents (`AGENT`), people (`OPERATOR`), and `EXECUTOR`, which may only see
an agent's flags where the agent gives each executor a token that is good for that executor's own container. Every
action that no list names is refused (`permissive: false`). Sources: docs/{authentication,authorization}.md and
acls.proto of 1.11.0.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mesos_gpu.wire.mesos.reservations import ANY_ROLE

FRAMEWORK, AGENT, OPERATOR, EXECUTOR = "mesos-gpu", "mesos-gpu-agent", "operator", "mesos-gpu-executor"
_SECRET_BYTES: Final = 32  # of randomness
#: What asks at the HTTP endpoints, flags of master and agents.
HTTP: Final = {
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
#: What executors do without tokens of their own.
_NESTED: Final = (
    "launch_nested_containers_as_user",
    "launch_nested_containers_under_parent_with_user",
    "wait_nested_containers",
    "kill_nested_containers",
)
_ANY: Final = {"type": "ANY"}


def credentials() -> dict[str, dict[str, str]]:
    """A secret for each name, as Mesos has it in files."""
    return {
        name: {"principal": name, "secret": secrets.token_urlsafe(_SECRET_BYTES)}
        for name in (FRAMEWORK, AGENT, OPERATOR, EXECUTOR)
    }


def known_to_master(own: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The file of the master's --credentials."""
    return {"credentials": [own[name] for name in (FRAMEWORK, AGENT, OPERATOR)]}


def known_to_agents(own: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The file of the agents' --http_credentials."""
    return {"credentials": [own[name] for name in (FRAMEWORK, OPERATOR, EXECUTOR)]}


def key_of_tokens() -> str:
    """The file of the agents' --jwt_secret_key."""
    return secrets.token_hex(_SECRET_BYTES)


def roles_of(words: Sequence[str], role: str = ANY_ROLE) -> tuple[str, ...]:
    """The roles of a scheduler, the default one first. `words`: its options; `role`: where they do not say --role."""
    given = dict[str, list[str]]()
    for name, word in zip(words, (*words[1:], ""), strict=False):
        option, equals, value = name.partition("=")
        given.setdefault(option, []).append(value if equals else word)
    own = [pair.partition("=")[2] for pair in given.get("--mesos-role-of", ())]
    return (given.get("--role", [role])[-1], *own)


def acls_of_master(user: str, roles: tuple[str, ...]) -> dict[str, Any]:
    """Access control lists of the master.

    Args:
        user: That executors run as.
        roles: Of the framework.
    """
    return {
        "permissive": False,
        "register_frameworks": _one(FRAMEWORK, roles=_names(*roles)),
        "register_agents": [{"principals": _names(AGENT), "agents": _ANY}],
        "run_tasks": _one(FRAMEWORK, users=_names(user)),
        **_reservations([role for role in roles if role != ANY_ROLE]),
        **_views(),
        **{action: _one(OPERATOR, **{on: _ANY}) for action, on in _OPERATORS.items()},
    }


def _reservations(roles: Sequence[str]) -> dict[str, Any]:
    """A framework of the role * alone reserves nothing; people and it give back what each has reserved."""
    if not roles:
        return {}
    return {
        "reserve_resources": [{"principals": _names(FRAMEWORK, OPERATOR), "roles": _names(*roles)}],
        "unreserve_resources": [
            rule for who in (FRAMEWORK, OPERATOR) for rule in _one(who, reserver_principals=_names(who))
        ],
    }


def acls_of_agents(user: str, *, tokens: bool = True) -> dict[str, Any]:
    """Access control lists of agents. None is about nested containers: an executor's token allows those in its own
    container, and no others.

    Args:
        user: That executors run as.
        tokens: Whether agents give executors tokens; else `EXECUTOR` may have nested containers, in any container.
    """
    who = _names(FRAMEWORK, OPERATOR)
    return {
        "permissive": False,
        "run_tasks": _one(FRAMEWORK, users=_names(user)),
        "access_sandboxes": [{"principals": who, "users": _names(user)}],
        "view_containers": [{"principals": who, "users": _ANY}],
        **_views(),
        **{name: _one(OPERATOR, **{on: _ANY}) for name, on in _OPERATORS.items() if "log" in name},
        **({} if tokens else {action: _one(EXECUTOR, users=_ANY) for action in _NESTED}),
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
