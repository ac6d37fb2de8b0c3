"""Metadata of the fields of the state, which journals and copies of the state read."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DERIVED: Final = MappingProxyType({"derived": True})  # a field that no journal has
PART: Final = MappingProxyType({"part": True})  # a part, whose fields journals have beside each other


def in_journal(name: str) -> Mapping[str, str]:
    """Return metadata of a field that journals, also of earlier versions, have under another name."""
    return {"journal": name}
