"""What an image says of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The part of an image's configuration that tells what it needs and what it runs."""

    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    user: str = ""  # as the image writes it: a name or a number, perhaps ":group"; empty: root
    directory: str = ""  # where its programs begin; empty: it does not say
