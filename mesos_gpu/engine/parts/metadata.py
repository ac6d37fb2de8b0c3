"""Metadata of fields of the state and the settings, which journals and copies read."""

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, get_type_hints

DERIVED: Final = MappingProxyType({"derived": True})  # marks a field that is not in journals
PART: Final = MappingProxyType({"part": True})  # marks a part; journals list the fields of all parts together


def in_journal(name: str) -> Mapping[str, str]:
    """Return metadata of a field that journals, also of earlier versions, have under another name."""
    return {"journal": name}


def parts_by_field(kind: type[Any]) -> Mapping[str, str]:
    """Return the name of the part of a dataclass that has each field, by the names of the fields of its parts."""
    hints = get_type_hints(kind)
    parts = [item.name for item in fields(kind) if item.metadata.get("part")]
    return {item.name: part for part in parts for item in fields(hints[part])}
