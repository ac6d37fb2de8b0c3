"""Principals, secrets and access control lists of Mesos, for `mesos-gpu install` and the embedded cluster.

There are four principals: the framework (`FRAMEWORK`), the agents (`AGENT`), operators (`OPERATOR`), and `EXECUTOR`,
which may only see an agent's flags if the agent gives each executor a token for the executor's own container. Actions
that no list names are refused (`permissive: false`). Sources: docs/{authentication,authorization}.md and acls.proto of
1.11.0.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mesos_gpu.wire.mesos.reservations import ANY_ROLE

FRAMEWORK, AGENT, OPERATOR, EXECUTOR = "mesos-gpu", "mesos-gpu-agent", "operator", "mesos-gpu-executor"
_SECRET_BYTES: Final = 32  # of randomness
#: Flags of master and agents that require authentication at their HTTP endpoints.
HTTP: Final = {
    "authenticate_http_readonly": "true",
    "authenticate_http_readwrite": "true",
}
#: Actions that operators may do besides those of the framework, with the name of their object.
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
#: What the framework and operators may see, with the name of the object.
_VIEWS: Final = {
    "view_frameworks": "users",
    "view_executors": "users",
    "view_tasks": "users",
    "view_roles": "roles",
    "get_endpoints": "paths",
}
#: Actions that executors need if they have no tokens of their own.
_NESTED: Final = (
    "launch_nested_containers_as_user",
    "launch_nested_containers_under_parent_with_user",
    "wait_nested_containers",
    "kill_nested_containers",
)
_ANY: Final = {"type": "ANY"}


def credentials() -> dict[str, dict[str, str]]:
    """Generate a secret for each principal, in the form of Mesos' credential files."""
    return {
        name: {"principal": name, "secret": secrets.token_urlsafe(_SECRET_BYTES)}
        for name in (FRAMEWORK, AGENT, OPERATOR, EXECUTOR)
    }


def known_to_master(own: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the content of the master's --credentials file."""
    return {"credentials": [own[name] for name in (FRAMEWORK, AGENT, OPERATOR)]}


def known_to_agents(own: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the content of the agents' --http_credentials file."""
    return {"credentials": [own[name] for name in (FRAMEWORK, OPERATOR, EXECUTOR)]}


def key_of_tokens() -> str:
    """Generate the content of the agents' --jwt_secret_key file."""
    return secrets.token_hex(_SECRET_BYTES)


def roles_of(words: Sequence[str], role: str = ANY_ROLE) -> tuple[str, ...]:
    """Return the Mesos roles of a scheduler, the default role first.

    Args:
        words: Options of `mesos-gpu scheduler`.
        role: Default role if the options have no --role.
    """
    values = dict[str, list[str]]()
    for name, word in zip(words, (*words[1:], ""), strict=False):
        option, equals, value = name.partition("=")
        values.setdefault(option, []).append(value if equals else word)
    own = [pair.partition("=")[2] for pair in values.get("--mesos-role-of", ())]
    return (values.get("--role", [role])[-1], *own)


def acls_of_master(user: str, roles: tuple[str, ...]) -> dict[str, Any]:
    """Return the access control lists of the master.

    Args:
        user: Unix user of executors.
        roles: Mesos roles of the framework.
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
    """Return the rules for reservations: none if the only role is `*`; each principal unreserves only its own."""
    if not roles:
        return {}
    return {
        "reserve_resources": [{"principals": _names(FRAMEWORK, OPERATOR), "roles": _names(*roles)}],
        "unreserve_resources": [
            rule for who in (FRAMEWORK, OPERATOR) for rule in _one(who, reserver_principals=_names(who))
        ],
    }


def acls_of_agents(user: str, *, tokens: bool = True) -> dict[str, Any]:
    """Return the access control lists of agents.

    With tokens, none is about nested containers: an executor's token allows those in its own container only.

    Args:
        user: Unix user of executors.
        tokens: Whether agents give executors tokens; if not, `EXECUTOR` may run nested containers in any container.
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
    """Return the rules for viewing; any authenticated principal sees flags, which name files but hold no secrets."""
    who = _names(FRAMEWORK, OPERATOR)
    views = {action: [{"principals": who, on: _ANY}] for action, on in _VIEWS.items()}
    return {**views, "view_flags": [{"principals": _ANY, "flags": _ANY}]}


def _names(*names: str) -> dict[str, Any]:
    return {"values": list(names)}


def _one(principal: str, **on: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"principals": _names(principal), **on}]
