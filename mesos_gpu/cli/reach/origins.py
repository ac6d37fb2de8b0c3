"""Origins that credentials belong to: scheme, host and port of a scheduler, or its socket."""

from typing import Final
from urllib.parse import urlsplit

from mesos_gpu.cli.locate import UNIX

_PORTS: Final = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Return the part of an address that determines who receives requests."""
    if url.startswith(UNIX):
        return url
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{parts.port or _PORTS[parts.scheme]}"
