"""Images as the Docker Engine API names and describes them. Pure."""

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.jobs.image import ImageConfig

SEE_LOGIN: Final = "check the image's name, and the login for its registry in the job's image_secret"
#: Texts of engines about registries that need another login; engines report some of these as failures of
#: their own.
_REFUSES: Final = re.compile(
    r"unauthorized|denied: |pull access denied|no basic auth credentials|authentication required|\b403 forbidden\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image of this host.

    Attributes:
        config: Configuration of what it runs, and needs.
        names: Names with tags, and names as REPOSITORY@DIGEST under which registries gave the image.
        platform: Operating system and architecture; empty parts are unknown.
    """

    config: ImageConfig
    names: tuple[str, ...]
    platform: tuple[str, str]


def refuses(what: str) -> bool:
    """Return whether an engine reports that a registry needs another login."""
    return _REFUSES.search(what) is not None


def quoted(name: str) -> str:
    """Return the name of an image for the path of a request.

    Raises:
        BadConfiguration: The text cannot be a name.
    """
    if not name or ".." in name:
        raise BadConfiguration(f"{name!r} cannot name an image", remedy="write name[:tag]")
    return quote(name, safe="/:@")


def tagged(name: str) -> str:
    """Return the name with a tag: without one the engine would fetch all tags."""
    return name if "@" in name or ":" in name.rpartition("/")[2] else name + ":latest"


def local_image(told: Any) -> LocalImage:
    """Return an image by the answer of /images/NAME/json."""
    names = (*(told.get("RepoTags") or ()), *(told.get("RepoDigests") or ()))
    platform = str(told.get("Os") or ""), str(told.get("Architecture") or "")
    return LocalImage(_config(told), tuple(map(str, names)), platform)


def _config(told: Any) -> ImageConfig:
    config = told["Config"] or {}
    return ImageConfig(
        labels=config.get("Labels") or {},
        env=dict(_pair(entry) for entry in config.get("Env") or ()),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        cmd=tuple(config.get("Cmd") or ()),
        user=config.get("User") or "",
    )


def _pair(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition("=")
    return name, value
