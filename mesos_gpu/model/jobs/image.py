"""Configuration of container images."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """Part of an image's configuration that describes its requirements and its command."""

    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    user: str = ""  # name or number as in the image, with an optional ":group"; empty for root
    directory: str = ""  # working directory; empty if not set
