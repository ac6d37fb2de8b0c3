"""Keys to which a host's secrets are sealed: made by its node monitor, read by its executors.

They are in a file of the node directory that only its owner can read. A key is used for a day, and kept for
an hour more to open what was sealed to it before: what agents keep of launches on their disks cannot be
opened later. The file also names the directory of the package cryptography, if that is installed, as
executors start without the paths of installed packages.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.files import private
from mesos_gpu.adapters.proc import boot_id

NAME: Final = "secret-keys.json"
FRESH_S: Final = 86400.0  # age at which the next key is made
KEPT_S: Final = 3600.0  # time for which a key is kept after its successor was made


@dataclass(frozen=True, slots=True)
class Key:
    """A private key; times are seconds since the epoch.

    Attributes:
        until: Time when the key expires; None for the current key.
    """

    private: bytes = field(repr=False)
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of a host, and the directory of the package cryptography.

    Attributes:
        keys: Keys, the latest first.
        library: Directory of the package cryptography; "" if it is not installed.
    """

    keys: tuple[Key, ...] = ()
    library: str = ""

    def lasting(self, now: float) -> tuple[Key, ...]:
        """Return the keys that have not expired.

        Args:
            now: Seconds since the epoch.
        """
        return tuple(key for key in self.keys if key.until is None or now < key.until)


def current(directory: Path, now: float) -> str:
    """Return the public key of this host; make it if there is no key for today.

    Args:
        directory: The node directory.
        now: Seconds since the epoch.

    Raises:
        OSError: It cannot be saved.
        Unavailable: This host has no library to make keys.
    """
    from mesos_gpu.adapters.secrets import envelope

    package = find_spec("cryptography")
    library = "" if package is None or package.origin is None else str(Path(package.origin).parent.parent)
    with _locked(directory):
        old = read(directory)
        keys = old.lasting(now)
        if not keys or keys[0].until is not None or not 0 <= now - keys[0].since < FRESH_S:
            replaced = (Key(key.private, key.since, key.until or now + KEPT_S) for key in keys)
            keys = (Key(envelope.new_key(), now), *replaced)
        if Keys(keys, library) != old:
            _write(directory, keys, library)
    return envelope.public_of(keys[0].private)


def read(directory: Path) -> Keys:
    """Return the keys that the monitor has written since this boot; none if others could have written or read
    the file.

    Raises:
        OSError: The file exists, but cannot be read.
    """
    try:
        body = json.loads(private.read(directory / NAME, links=False))
        if body["boot_id"] != boot_id():
            return Keys()
        keys = (Key(bytes.fromhex(key["private"]), key["since"], key["until"]) for key in body["keys"])
        return Keys(tuple(keys), body["library"])
    except (FileNotFoundError, private.Exposed, ValueError, KeyError, TypeError):
        return Keys()


def _write(directory: Path, keys: Sequence[Key], library: str) -> None:
    written = [{"private": key.private.hex(), "since": key.since, "until": key.until} for key in keys]
    part = directory / f".{NAME}.{os.getpid()}"
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump({"boot_id": boot_id(), "library": library, "keys": written}, file)
    part.rename(directory / NAME)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock, so that two monitors of one host make one key."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
