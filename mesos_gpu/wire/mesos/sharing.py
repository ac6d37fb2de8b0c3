"""`Sharing`, what a card has for shares, to JSON and back: in reports and in inventory files.

Only the standard library: the host side imports it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from mesos_gpu.model.shares.card import Ability, MigInstance, MigProfile, Sharing
from mesos_gpu.wire.body import MAX_AMOUNT

ABILITIES: Final = frozenset(ability.value for ability in Ability)
_FIELDS: Final = frozenset(field.name for field in fields(Sharing))
_INSTANCE: Final = ("uuid", "profile", "memory_mib", "sm_count", "gpu_instance", "compute_instance")
_TEXTS: Final = frozenset({"uuid", "profile"})  # all else is numbers


def sharing_to_json(sharing: Sharing) -> dict[str, Any]:
    """What a card has for shares, as a JSON object."""
    return {
        "memory_mib": sharing.memory_mib,
        "abilities": {ability.value: why for ability, why in sharing.abilities},
        "sm_count": sharing.sm_count,
        "mig": sharing.mig,
        "instances": [asdict(each) for each in sharing.instances],
        "profiles": [asdict(each) for each in sharing.profiles],
        "mps_clients": sharing.mps_clients,
        "mps_users": sharing.mps_users,
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
    return Sharing(
        memory_mib=_number(value, "memory_mib"),
        abilities=tuple((Ability(name), why) for name, why in abilities.items() if name in ABILITIES),
        sm_count=None if value.get("sm_count") is None else _number(value, "sm_count"),
        mig=_flag(value, "mig"),
        instances=tuple(_instance(where, each) for where, each in _listed(value, "instances")),
        profiles=tuple(_profile(where, each) for where, each in _listed(value, "profiles")),
        mps_clients=_number(value, "mps_clients") if "mps_clients" in value else 0,
        mps_users=_flag(value, "mps_users"),
    )


def unknown_in(value: Mapping[str, Any]) -> str:
    """The first field or ability of a JSON object that is not known here; "": all are."""
    strange = sorted(set(value) - _FIELDS)
    if strange:
        return f"unknown field {strange[0]!r}; known are {', '.join(sorted(_FIELDS))}"
    abilities = value.get("abilities", {})
    strange = sorted(set(abilities) - ABILITIES) if isinstance(abilities, dict) else []
    return f"unknown ability {strange[0]!r}; known are {', '.join(sorted(ABILITIES))}" if strange else ""


def _number(value: Mapping[str, Any], name: str, where: str = "sharing") -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MAX_AMOUNT:
        raise ValueError(f"{where}.{name} must be a whole number, 0 or more, got {number!r}")
    return number


def _flag(value: Mapping[str, Any], name: str) -> bool:
    flag = value.get(name, False)
    if not isinstance(flag, bool):
        raise ValueError(f"sharing.{name} must be true or false, got {flag!r}")
    return flag


def _text(value: Mapping[str, Any], name: str, where: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not text:
        raise ValueError(f"{where}.{name} must be a name, got {text!r}")
    return text


def _listed(value: Mapping[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of a list, with the words for where it is."""
    items = value.get(name, [])
    if not isinstance(items, list):
        raise ValueError(f"sharing.{name} must be a list, got {items!r}")
    for index, item in enumerate(items):
        where = f"sharing.{name}[{index}]"
        if not isinstance(item, dict):
            raise ValueError(f"{where} must be a JSON object, got {item!r}")
        yield where, item


def _instance(where: str, value: Mapping[str, Any]) -> MigInstance:
    """Read an instance; thousandths and place may be left out."""
    names = [field.name for field in fields(MigInstance) if field.name in _INSTANCE or field.name in value]
    return MigInstance(
        **{n: _text(value, n, where) if n in _TEXTS else _number(value, n, where) for n in names}  # type: ignore[arg-type]
    )


def _profile(where: str, value: Mapping[str, Any]) -> MigProfile:
    starts = value.get("starts")
    if not isinstance(starts, list | tuple) or not all(
        type(start) is int and 0 <= start < MAX_AMOUNT for start in starts
    ):
        raise ValueError(f"{where}.starts must be a list of whole numbers, got {starts!r}")
    return MigProfile(
        name=_text(value, "name", where),
        number=_number(value, "number", where),
        memory_mib=_number(value, "memory_mib", where),
        compute_milli=_number(value, "compute_milli", where),
        memory_milli=_number(value, "memory_milli", where),
        starts=tuple(starts),
        width=_number(value, "width", where),
    )
