"""What a server asks of its clients."""

from enum import Enum


class Clients(Enum):
    """Whether clients are to show certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"
