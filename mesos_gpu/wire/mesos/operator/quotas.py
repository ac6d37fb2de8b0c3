"""Quotas and weights of roles, as the operator's API of a master has them. Pure.

Sources: include/mesos/v1/{quota/quota,master/master}.proto (UPDATE_QUOTA, UPDATE_WEIGHTS), and the answer of /roles.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from mesos_gpu.model.nodes.role import GPUS, Amounts, Role


def roles_of(answered: Iterable[Mapping[str, Any]]) -> dict[str, Role]:
    """What /roles answers under "roles", by name."""
    made = {}
    for each in answered:
        quota = each.get("quota") or {}
        used = quota.get("consumed") or each.get("resources") or {}
        made[each["name"]] = Role(
            each["name"],
            float(each.get("weight", 1.0)),
            _amounts(quota.get("limit") or {}),
            _amounts(quota.get("guarantee") or {}),
            _amounts(used),
            tuple(each.get("frameworks") or ()),
        )
    return made


def _amounts(given: Mapping[str, Any]) -> dict[str, float]:
    """Scalars; ranges, as of ports, count for nothing here."""
    return {name: float(value) for name, value in given.items() if isinstance(value, int | float)}


def with_limit(role: Role, gpus: int | None) -> dict[str, Any]:
    """A QuotaConfig that changes the limit of GPUs alone; None: there is none."""
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
    """The call that sets them all, or none.

    Args:
        configs: As of `with_limit`.
        force: Also where a role has more than its limit.
    """
    return {"type": "UPDATE_QUOTA", "update_quota": {"force": force, "quota_configs": [*configs]}}


def update_weights(weights: Mapping[str, float]) -> dict[str, Any]:
    """The call that sets the weights of roles."""
    infos = [{"role": role, "weight": weight} for role, weight in sorted(weights.items())]
    return {"type": "UPDATE_WEIGHTS", "update_weights": {"weight_infos": infos}}
