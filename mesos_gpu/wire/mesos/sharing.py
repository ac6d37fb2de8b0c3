"""JSON of `Sharing`, a card's capacity for shares, in reports and inventory files.

The host side imports this module, so it uses only the standard library.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from mesos_gpu.model.shares.card import Ability, MigInstance, MigProfile, Sharing
from mesos_gpu.wire.body import MAX_AMOUNT

ABILITIES: Final = frozenset(ability.value for ability in Ability)
_FIELDS: Final = frozenset(field.name for field in fields(Sharing))
_INSTANCE: Final = ("uuid", "profile", "memory_mib", "sm_count", "gpu_instance", "compute_instance")
_TEXTS: Final = frozenset({"uuid", "profile"})  # the other fields are numbers


def sharing_to_json(sharing: Sharing) -> dict[str, Any]:
    """Return a card's capacity for shares as a JSON object."""
    return {
        "memory_mib": sharing.memory_mib,
        "abilities": {ability.value: why for ability, why in sharing.abilities},
        "sm_count": sharing.sm_count,
        "mig": sharing.mig,
        "instances": [asdict(instance) for instance in sharing.instances],
        "profiles": [asdict(profile) for profile in sharing.profiles],
        "mps_clients": sharing.mps_clients,
        "mps_users": sharing.mps_users,
    }


def sharing_from_json(value: Any) -> Sharing:
    """Parse a JSON object from `sharing_to_json`; unknown abilities and fields of newer monitors are ignored.

    Raises:
        ValueError: A field is missing, has another type, or is out of range; the message names it.
    """
    if not isinstance(value, dict):
        raise ValueError(f"sharing must be a JSON object, got {value!r}")
    abilities = value.get("abilities", {})
    if not isinstance(abilities, dict) or not all(isinstance(why, str) for why in abilities.values()):
        raise ValueError(
            f'sharing.abilities must map each ability to why it is unusable, or "" if it is usable; got {abilities!r}'
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
    """Return a message about the first unknown field or ability of a JSON object; "" if all are known."""
    strange = sorted(set(value) - _FIELDS)
    if strange:
        return f"unknown field {strange[0]!r}; known fields are {', '.join(sorted(_FIELDS))}"
    abilities = value.get("abilities", {})
    strange = sorted(set(abilities) - ABILITIES) if isinstance(abilities, dict) else []
    return (
        f"unknown ability {strange[0]!r}; known abilities are {', '.join(sorted(ABILITIES))}"
        if strange
        else ""
    )


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
    """Yield each object of a list, with its place as text."""
    items = value.get(name, [])
    if not isinstance(items, list):
        raise ValueError(f"sharing.{name} must be a list, got {items!r}")
    for index, item in enumerate(items):
        where = f"sharing.{name}[{index}]"
        if not isinstance(item, dict):
            raise ValueError(f"{where} must be a JSON object, got {item!r}")
        yield where, item


def _instance(where: str, value: Mapping[str, Any]) -> MigInstance:
    """Return an instance; thousandths and place may be absent."""
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
