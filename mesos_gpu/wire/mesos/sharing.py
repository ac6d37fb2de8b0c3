"""`Sharing`, what a card has for shares, to JSON and back: in reports and in inventory files.

Only the standard library: the host side imports it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from mesos_gpu.model.share import Ability, MigInstance, Sharing

ABILITIES: Final = frozenset(ability.value for ability in Ability)
_FIELDS: Final = frozenset(field.name for field in fields(Sharing))
_INSTANCE: Final[Mapping[str, type]] = {
    "uuid": str,
    "profile": str,
    "memory_mib": int,
    "sm_count": int,
    "gpu_instance": int,
    "compute_instance": int,
}


def sharing_to_json(sharing: Sharing) -> dict[str, Any]:
    """What a card has for shares, as a JSON object."""
    return {
        "memory_mib": sharing.memory_mib,
        "abilities": {ability.value: why for ability, why in sharing.abilities},
        "sm_count": sharing.sm_count,
        "mig": sharing.mig,
        "instances": [{name: getattr(each, name) for name in _INSTANCE} for each in sharing.instances],
    }


def sharing_from_json(value: Any) -> Sharing:
    """The inverse. Abilities and fields that are not known here are left out: a newer monitor may have more.

    Raises:
        ValueError: A field is missing, of another type, or out of range; the message names it.
    """
    if not isinstance(value, dict):
        raise ValueError(f"sharing must be a JSON object, got {value!r}")
    abilities = value.get("abilities", {})
    if not isinstance(abilities, dict) or not all(isinstance(why, str) for why in abilities.values()):
        raise ValueError(
            f'sharing.abilities must be an object of names with why not ("": usable), got {abilities!r}'
        )
    mig, instances = value.get("mig", False), value.get("instances", [])
    if not isinstance(mig, bool):
        raise ValueError(f"sharing.mig must be true or false, got {mig!r}")
    if not isinstance(instances, list):
        raise ValueError(f"sharing.instances must be a list, got {instances!r}")
    return Sharing(
        memory_mib=_number(value, "memory_mib"),
        abilities=tuple((Ability(name), why) for name, why in abilities.items() if name in ABILITIES),
        sm_count=None if value.get("sm_count") is None else _number(value, "sm_count"),
        mig=mig,
        instances=tuple(_instance(index, each) for index, each in enumerate(instances)),
    )


def unknown_in(value: Mapping[str, Any]) -> str:
    """The first field or ability of a JSON object that is not known here; "": all are."""
    strange = sorted(set(value) - _FIELDS)
    if strange:
        return f"unknown field {strange[0]!r}; known are {', '.join(sorted(_FIELDS))}"
    abilities = value.get("abilities", {})
    strange = sorted(set(abilities) - ABILITIES) if isinstance(abilities, dict) else []
    return f"unknown ability {strange[0]!r}; known are {', '.join(sorted(ABILITIES))}" if strange else ""


def _number(value: Mapping[str, Any], name: str) -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"sharing.{name} must be a whole number, 0 or more, got {number!r}")
    return number


def _instance(index: int, value: Any) -> MigInstance:
    where = f"sharing.instances[{index}]"
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a JSON object, got {value!r}")
    for name, kind in _INSTANCE.items():
        if not isinstance(value.get(name), kind) or isinstance(value[name], bool):
            raise ValueError(f"{where}.{name} must be of type {kind.__name__}, got {value.get(name)!r}")
    return MigInstance(**{name: value[name] for name in _INSTANCE})
