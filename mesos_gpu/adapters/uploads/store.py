"""Archives that submitters send along with their jobs: files by owner and digest, in a private directory.

An archive is known by the SHA-256 of its bytes, which are checked before it can be used. Each owner has archives of his
own: who only knows a digest, as it is shown with a job, can neither ask for the bytes nor run with them.
"""

import hashlib
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesos_gpu.errors import BadConfiguration, Conflict, MesosGpuError, NoRoom, NotFound, TooMuch

#: What nobody uses is kept for so long since it was last asked for, so that the next job with the same files need not
#: send them.
KEEP_S: Final = 7 * 86400.0
#: The least that it is kept where room is needed: between its last byte and the job that needs it.
GRACE_S: Final = 600.0
MOST_ARCHIVES: Final = 1000  # of one owner
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = ".part"  # of the name of an archive that is not whole
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class OutOfPlace(MesosGpuError):
    """A piece that does not continue what is there."""

    http_status = 409

    def __init__(self, received: int) -> None:
        """`received`: bytes that are there."""
        super().__init__(f"{received} bytes of it are here", remedy=f"go on at offset={received}")
        self.received = received


class Mismatch(MesosGpuError):
    """An archive whose bytes are not those of its digest, or more than it was said to have."""

    http_status = 422


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What may be kept. `archive_bytes`: of one archive; `owner_bytes`: of all of one owner."""

    archive_bytes: int = 512 << 20
    owner_bytes: int = 4096 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """An archive, or as much of one as has come. `used_at`: when it was last sent or asked for."""

    digest: str  # in hexadecimal digits
    received: int
    complete: bool
    used_at: float


class UploadStore:
    """A directory of archives. For all threads."""

    def __init__(
        self, directory: Path, limits: UploadLimits | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Make the directory if it is new. `clock`: seconds since the epoch, as the file system has it.

        Raises:
            BadConfiguration: It cannot be used.
        """
        self._directory, self._clock, self.limits = directory, clock, limits or UploadLimits()
        self._lock = threading.Lock()
        self._held = Counter[tuple[str, str]]()  # owner and digest of what is about to be needed
        self._going = set[tuple[str, str]]()  # of what is about to be removed
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.chmod(directory, 0o700)
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                raise PermissionError(1, "it is a link, or another user's")
        except OSError as error:
            raise BadConfiguration(
                f"{directory}: archives of jobs cannot be kept there: {error.strerror}",
                remedy="name another directory with --uploads-dir",
            ) from error

    def find(self, owner: str, digest: str) -> Upload | None:
        """What there is of an archive."""
        with self._lock:
            return self._find(owner, digest)

    def of_owner(self, owner: str) -> list[Upload]:
        """All archives of an owner, the latest used first."""
        with self._lock:
            return sorted(self._all_of(self._of(owner)), key=lambda each: -each.used_at)

    def touch(self, owner: str, digest: str) -> Upload:
        """Note that a whole archive is about to be used, so that it is kept for a while.

        Raises:
            NotFound: There is none that is whole.
        """
        with self._lock:
            there = self._find(owner, digest)
            if there is None or not there.complete:
                raise _not_whole(owner, digest)
            now = self._clock()
            os.utime(self._of(owner) / digest, (now, now))
            return there

    @contextmanager
    def held(self, owner: str, digest: str) -> Iterator[None]:
        """Keep a whole archive until who is about to need it is known to need it.

        Raises:
            NotFound: There is none that is whole, or it is being removed.
        """
        key = owner, digest
        with self._lock:
            if key in self._going:
                raise _not_whole(owner, digest)
            self._held[key] += 1
        try:
            self.touch(owner, digest)
            yield
        finally:
            with self._lock:
                self._held[key] -= 1
                self._held += Counter()  # forgets what nobody holds

    @contextmanager
    def going(self, owner: str, digest: str) -> Iterator[None]:
        """Let nobody begin to need an archive while it is seen whether anybody does, and removed.

        Raises:
            Conflict: Somebody begins to.
        """
        key = owner, digest
        with self._lock:
            if self._held[key] or key in self._going:
                what = f"archive {digest[:64]} is just being taken by a job or an app, or removed"
                raise Conflict(what, remedy="try again")
            self._going.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._going.discard(key)

    def put(self, owner: str, digest: str, offset: int, size: int, data: bytes) -> Upload:
        """Add a piece of an archive of `size` bytes.

        Raises:
            ValueError: The digest is none.
            OutOfPlace: What is there does not end at `offset`.
            TooMuch: It is larger than may be, or the owner has no room left.
            Mismatch: It is whole, and not what its digest says; it is gone.
            NoRoom: The disk is full.
        """
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is not the SHA-256 of anything")
        with self._lock:
            there = self._find(owner, digest)
            if there is not None and there.complete:
                return there
            received = there.received if there is not None else 0
            if offset != received:
                raise OutOfPlace(received)
            self._see_room(owner, digest, size)
            if received + len(data) > size:
                raise Mismatch(f"more than the {size} bytes of it", remedy="send it from its beginning")
            try:
                return self._append(self._of(owner), digest, data, size)
            except OSError as error:
                raise NoRoom(
                    f"the archive cannot be kept: {error.strerror}",
                    remedy="make room on the scheduler's disk",
                ) from error

    def open(self, owner: str, digest: str) -> int:
        """A descriptor of a whole archive, to read.

        Raises:
            NotFound: There is none.
        """
        self.touch(owner, digest)
        return os.open(self._of(owner) / digest, _READ)

    def remove(self, owner: str, digest: str) -> Upload:
        """Remove an archive, or as much of one as has come; what there was.

        Raises:
            NotFound: There is none.
        """
        with self._lock:
            there = self._find(owner, digest)
            if there is None:
                raise NotFound(
                    f"there is no archive {digest[:64]} of {owner or 'yours'}",
                    remedy="see them: mesos-gpu uploads list",
                )
            self._path(self._of(owner), there).unlink()
            return there

    def collect(self, needed: Collection[tuple[str, str]]) -> int:
        """Remove what nobody has used for long; how many there were.

        Args:
            needed: Owner and digest of archives that jobs need, which stay.
        """
        keep = {(self._of(owner).name, digest) for owner, digest in needed}
        removed, now = 0, self._clock()
        with self._lock:
            for place in self._directory.iterdir():
                for each in list(self._all_of(place)):
                    lasts = KEEP_S if each.complete else GRACE_S
                    if (place.name, each.digest) not in keep and now - each.used_at > lasts:
                        self._path(place, each).unlink(missing_ok=True)
                        removed += 1
        return removed

    def make_room(self, owner: str, needed: Collection[str], size: int) -> None:
        """Remove archives of an owner that nobody needs, those that were used longest ago first, until one of `size`
        bytes has room.

        Args:
            owner: Whose.
            needed: Digests that jobs need.
            size: Bytes.
        """
        with self._lock:
            place, now = self._of(owner), self._clock()
            there = sorted(self._all_of(place), key=lambda each: each.used_at)
            taken = sum(each.received for each in there)
            for each in there:
                if taken + size <= self.limits.owner_bytes:
                    return
                if each.digest not in needed and now - each.used_at > GRACE_S:
                    self._path(place, each).unlink(missing_ok=True)
                    taken -= each.received

    def _see_room(self, owner: str, digest: str, size: int) -> None:
        most = self.limits.archive_bytes
        if not 0 < size <= most:
            raise TooMuch(
                f"the archive has {size / 2**20:.1f} MiB, and {most >> 20} are taken",
                remedy="leave files out with .mesosgpuignore; data comes by --fetch or --volume",
            )
        others = [each for each in self._all_of(self._of(owner)) if each.digest != digest]
        taken, whole = sum(each.received for each in others), self.limits.owner_bytes
        if taken + size > whole or len(others) >= MOST_ARCHIVES:
            raise TooMuch(
                f"archives of {owner or 'jobs'} take {taken >> 20} MiB of {whole >> 20}, and {len(others)} of "
                f"{MOST_ARCHIVES}",
                remedy="wait until jobs that need them have ended: others go when room is needed",
            )

    def _append(self, place: Path, digest: str, data: bytes, size: int) -> Upload:
        place.mkdir(mode=0o700, exist_ok=True)
        part = place / (digest + _PART)
        fd = os.open(part, _APPEND, 0o600)
        try:
            before = os.fstat(fd).st_size
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(fd, left) :]
            except OSError:
                os.ftruncate(fd, before)
                raise
            received = before + len(data)
            if received == size:
                os.fsync(fd)
        finally:
            os.close(fd)
        if received < size:
            return Upload(digest, received, complete=False, used_at=self._clock())
        if _digest_of(part) != digest:
            part.unlink()
            what = f"what came is not the archive sha256:{digest}"
            raise Mismatch(what, remedy="send it again, from its beginning")
        os.rename(part, place / digest)
        return Upload(digest, received, complete=True, used_at=self._clock())

    def _find(self, owner: str, digest: str) -> Upload | None:
        if not _DIGEST.fullmatch(digest):
            return None
        place = self._of(owner)
        for name, complete in ((digest, True), (digest + _PART, False)):
            try:
                status = (place / name).stat()
            except FileNotFoundError:
                continue
            return Upload(digest, status.st_size, complete, status.st_mtime)
        return None

    def _all_of(self, place: Path) -> Iterator[Upload]:
        if not place.is_dir():
            return
        for path in place.iterdir():
            name = path.name.removesuffix(_PART)
            if _DIGEST.fullmatch(name):
                status = path.stat()
                yield Upload(name, status.st_size, name == path.name, status.st_mtime)

    def _of(self, owner: str) -> Path:
        """An owner's directory: a name may hold what no file's may."""
        return self._directory / hashlib.sha256(owner.encode()).hexdigest()[:32]

    @staticmethod
    def _path(place: Path, upload: Upload) -> Path:
        return place / (upload.digest if upload.complete else upload.digest + _PART)


def _not_whole(owner: str, digest: str) -> NotFound:
    what = f"there is no archive sha256:{digest} of {owner or 'yours'}"
    return NotFound(what, remedy="send it again: mesos-gpu run --upload")


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
