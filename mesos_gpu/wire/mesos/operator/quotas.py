"""Quotas and weights of roles in a Mesos master's operator API; pure functions.

Sources: include/mesos/v1/{quota/quota,master/master}.proto (UPDATE_QUOTA, UPDATE_WEIGHTS), and the response of /roles.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from mesos_gpu.model.nodes.role import GPUS, Amounts, Role


def roles_of(answered: Iterable[Mapping[str, Any]]) -> dict[str, Role]:
    """Parse the roles in a response of /roles; return them by name."""
    roles = {}
    for entry in answered:
        quota = entry.get("quota") or {}
        used = quota.get("consumed") or entry.get("resources") or {}
        roles[entry["name"]] = Role(
            entry["name"],
            float(entry.get("weight", 1.0)),
            _amounts(quota.get("limit") or {}),
            _amounts(quota.get("guarantee") or {}),
            _amounts(used),
            tuple(entry.get("frameworks") or ()),
        )
    return roles


def _amounts(given: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalars; ranges, such as ports, are ignored."""
    return {name: float(value) for name, value in given.items() if isinstance(value, int | float)}


def with_limit(role: Role, gpus: int | None) -> dict[str, Any]:
    """Return a QuotaConfig that changes only the limit of GPUs; None removes the limit."""
    limits = {name: amount for name, amount in role.limits.items() if name != GPUS}
    if gpus is not None:
        limits[GPUS] = float(gpus)
    config: dict[str, Any] = {"role": role.name, "limits": _values(limits)}
    if role.guarantees:
        config["guarantees"] = _values(role.guarantees)
    return config


def _values(amounts: Amounts) -> dict[str, dict[str, float]]:
    return {name: {"value": amount} for name, amount in sorted(amounts.items())}


def update_quota(configs: Iterable[Mapping[str, Any]], *, force: bool) -> dict[str, Any]:
    """Return the call that sets several quotas, all or none.

    Args:
        configs: Results of `with_limit`.
        force: Whether to set limits below what a role has.
    """
    return {"type": "UPDATE_QUOTA", "update_quota": {"force": force, "quota_configs": [*configs]}}


def update_weights(weights: Mapping[str, float]) -> dict[str, Any]:
    """Return the call that sets weights of roles."""
    infos = [{"role": role, "weight": weight} for role, weight in sorted(weights.items())]
    return {"type": "UPDATE_WEIGHTS", "update_weights": {"weight_infos": infos}}
