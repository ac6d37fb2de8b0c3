"""Images that their registries showed to this host without a login, which may be run from the host's cache
while a registry is down.

An image that is not on record may be private, and is run only after its registry has shown it to the task's
own login.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Final

from mesos_gpu.wire.body import parsed

NAME: Final = "public-images.json"
KEPT_S: Final = 86400.0  # age in seconds at which a record expires
FRESH_S: Final = 3600.0  # age in seconds up to which a record is not written again
MAX_RECORDS: Final = 1000


class PublicImages:
    """Record of the public images of one host, a file in its node directory.

    Args:
        directory: The node directory; the file need not exist.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def is_public(self, image: str, now: float) -> bool:
        """Return whether an image was shown without a login within the last day.

        Args:
            image: Registry, repository and digest of the image, REGISTRY/PATH@DIGEST.
            now: Seconds since the epoch.
        """
        return 0 <= now - self._read().get(image, -KEPT_S) < KEPT_S

    def add(self, image: str, now: float) -> None:
        """Record that an image was shown without a login; for arguments see `is_public`.

        Raises:
            OSError: The file cannot be written.
        """
        records = self._read()
        if 0 <= now - records.get(image, -KEPT_S) < FRESH_S:
            return
        newest = sorted({**records, image: now}.items(), key=lambda record: record[1])[-MAX_RECORDS:]
        self._write({name: at for name, at in newest if now - at < KEPT_S})

    def remove(self, image: str) -> None:
        """Forget an image, which its registry does not show any more.

        Raises:
            OSError: The file cannot be written.
        """
        records = self._read()
        if records.pop(image, None) is not None:
            self._write(records)

    def _read(self) -> dict[str, float]:
        try:
            records = parsed(self._path.read_bytes())
            return {str(name): float(at) for name, at in records.items()}
        except (OSError, ValueError, TypeError, AttributeError):  # no record: the registry decides
            return {}

    def _write(self, records: dict[str, float]) -> None:
        descriptor, name = tempfile.mkstemp(prefix=f".{NAME}.", dir=self._path.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(records, file)
            os.replace(name, self._path)
        except OSError:
            os.unlink(name)
            raise
