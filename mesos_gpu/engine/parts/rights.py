"""Rights of users, and their tokens."""

from dataclasses import dataclass, field

from mesos_gpu.model.access.document import NO_DOCUMENT, AccessDocument
from mesos_gpu.model.access.token import Token


@dataclass(slots=True)
class RightsPart:
    """Rights of the state.

    Attributes:
        access_versions: Versions of the access document, oldest first.
        tokens: Tokens by their ids.
        tokens_swept_at: Time at which expired tokens were last removed, in seconds since the epoch.
    """

    access_versions: dict[int, AccessDocument] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    tokens_swept_at: float = 0.0

    @property
    def access(self) -> AccessDocument:
        """Latest version of the access document."""
        return next(reversed(self.access_versions.values()), NO_DOCUMENT)
