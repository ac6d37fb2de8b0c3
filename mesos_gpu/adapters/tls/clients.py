"""Server setting for client certificates."""

from enum import Enum


class Clients(Enum):
    """Whether clients must show certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"
