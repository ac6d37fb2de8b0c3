"""Names of images, in Docker's grammar. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from mesos_gpu.errors import NotFound

#: OCI Distribution Specification, "Pulling manifests"; the host as in Docker's grammar of references.
_NAME: Final = re.compile(
    r"(?P<repository>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?![^:]{{254}}){_LABEL}(?:\.{_LABEL})*(?::(?P<port>[0-9]{{1,5}}))?", re.ASCII)
_MAX_PORT: Final = 65535
HUB: Final = "docker.io"
_HUBS: Final = frozenset({HUB, "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True)
class Reference:
    """Parts of an image's name.

    Attributes:
        host: HOST[:PORT] of its registry; empty if the name has no host.
        repository: Path in the registry.
        reference: Tag or digest.
    """

    host: str
    repository: str
    reference: str

    @classmethod
    def of(cls, image: str) -> "Reference":
        """Parse an image's name as Docker does.

        The part before the first slash is a host if it has a dot or colon, or is localhost.

        Raises:
            NotFound: The text is not the name of an image.
        """
        first, slash, rest = image.partition("/")
        host = first if slash and (set(".:") & set(first) or first == "localhost") else ""
        name = _NAME.fullmatch(rest if host else image)
        if not name or (host and not _is_host(host)):
            raise NotFound(
                f"{image!r} is not the name of an image", remedy="name it as [host/]repository[:tag]"
            )
        return cls(host, name["repository"], name["digest"] or name["tag"] or "latest")

    @property
    def qualified(self) -> str:
        """Repository, with the registry's host if the name of the image has one."""
        return f"{self.host}/{self.repository}" if self.host else self.repository

    @property
    def place(self) -> tuple[str, str]:
        """Registry and repository, each by its canonical name."""
        host = registry_host(self.host)
        return host, self.repository.removeprefix("library/") if host == HUB else self.repository


def _is_host(host: str) -> bool:
    match = _HOST.fullmatch(host)
    return match is not None and 0 < int(match["port"] or _MAX_PORT) <= _MAX_PORT


def registry_host(host: str) -> str:
    """Return one name for a registry, whichever of its names is given.

    Args:
        host: HOST[:PORT], in lower or upper case; empty for the registry of names without a host.
    """
    host = host.lower()
    return HUB if not host or host in _HUBS else host
