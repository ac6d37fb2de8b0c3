"""Server setting for client certificates."""

from enum import Enum


class Clients(Enum):
    """Requirement of client certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"
