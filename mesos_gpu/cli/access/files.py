"""Form of the access document in files of the command line."""

from collections.abc import Mapping
from typing import Any, Final

from mesos_gpu.adapters.files.versioned import ACCESS
from mesos_gpu.cli.versioned.files import without
from mesos_gpu.cli.versioned.kept import Kept
from mesos_gpu.model.words import counted

_ROLE_DEFAULTS: Final[Mapping[str, Any]] = {
    "users": [], "images": ["*"], "volumes": [], "highest_priority": 0, "must_be_preemptible": False,
}  # fmt: skip
_BINDING_DEFAULTS: Final[Mapping[str, Any]] = {"names": [], "groups": [], "queues": ["*"], "apps": ["/*"]}


def _body(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "roles": [_role(role) for role in shown["roles"]],
        "bindings": [without(binding, _BINDING_DEFAULTS) for binding in shown["bindings"]],
        "unix_users": dict(shown["unix_users"]),
        "shares": dict(shown["shares"]),
    }


def _role(role: Mapping[str, Any]) -> dict[str, Any]:
    limits = without(role["limits"], _ROLE_DEFAULTS)
    return {"name": role["name"], "rights": role["rights"], **({"limits": limits} if limits else {})}


KIND: Final = Kept(
    ACCESS,
    "access",
    "/v1/access",
    "/v1/access/versions",
    "only root on the scheduler's host has rights",
    _body,
    lambda shown: f"{counted(len(shown['roles']), 'role')} and {counted(len(shown['bindings']), 'binding')}",
)
