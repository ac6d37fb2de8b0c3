"""Archives that users upload for their jobs: files by owner and digest, in a private directory.

An archive is identified by the SHA-256 of its bytes, which are checked before it can be used. Archives are separate for
each owner: users who only know a digest, which is shown with a job, can neither read the archive nor run it.

A thread claims an archive before it writes or removes the archive's file. Claims are in memory, and their lock is not
held during calls to the file system, so a slow disk delays one archive and not the others.
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
from math import inf
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.disk.room import Reserve
from mesos_gpu.errors import BadConfiguration, Conflict, MesosGpuError, NoRoom, NotFound, TooMuch

#: Seconds for which an unused archive is kept after its last use, so that a later job with equal files need not upload
#: them again.
KEEP_S: Final = 7 * 86400.0
#: Minimum of that time if room is needed: it covers the time between the upload and the submission of the job.
GRACE_S: Final = 600.0
MAX_ARCHIVES: Final = 1000  # of one owner
#: Bytes written between syncs of a part: the last sync of an archive has no more to write.
_SYNC: Final = 16 << 20
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = ".part"  # of the name of an archive that is not whole
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class OutOfPlace(MesosGpuError):
    """A piece does not continue the received part of an archive.

    Args:
        received: Number of received bytes.
    """

    http_status = 409

    def __init__(self, received: int) -> None:
        super().__init__(
            f"{received} bytes of the archive were received", remedy=f"continue at offset={received}"
        )
        self.received = received


class TooLarge(MesosGpuError):
    """An archive is larger than the limit, or empty."""

    exit_code, http_status = 65, 413


class Mismatch(MesosGpuError):
    """The bytes of an archive do not match its digest or its announced size."""

    http_status = 422


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Limits in bytes: of one archive, of all archives of one owner, and of all archives together.

    The last quarter of the latter is kept for owners whose archives have no more than one archive may have. So a few
    owners that use up their own limits leave room for others.

    Attributes:
        keeps_quarter: Whether that holds; not in a copy of another scheduler's archives, which come in any order.
    """

    archive_bytes: int = 512 << 20
    owner_bytes: int = 4096 << 20
    all_bytes: int = 16384 << 20
    keeps_quarter: bool = True

    def all_bytes_for(self, owned: int) -> int:
        """Return the limit of all archives together for an owner who would have `owned` bytes."""
        is_small = owned <= self.archive_bytes
        return self.all_bytes if is_small or not self.keeps_quarter else self.all_bytes * 3 // 4


@dataclass(frozen=True, slots=True)
class Upload:
    """A complete archive, or the received part of one. `used_at`: time of its last upload or use."""

    digest: str  # in hexadecimal digits
    received: int
    complete: bool
    used_at: float


class _Hash:
    """SHA-256 of the first `count` bytes of an archive that is being received."""

    def __init__(self) -> None:
        self._state, self.count = hashlib.sha256(), 0

    def update(self, data: bytes) -> None:
        self._state.update(data)
        self.count += len(data)

    def digest(self) -> str:
        return self._state.hexdigest()


_Key = tuple[str, str]  # name of the owner's directory, and digest


class UploadStore:
    """A directory of archives. Thread-safe.

    Args:
        directory: Directory that contains nothing but archives; created if missing.
        limits: Limits in bytes; None for the defaults.
        clock: Function that returns the file system's time, in seconds since the epoch.
        reserve: Free space that archives leave on the file system; None for the default.

    Raises:
        BadConfiguration: The directory cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        limits: UploadLimits | None = None,
        clock: Callable[[], float] = time.time,
        reserve: Reserve | None = None,
    ) -> None:
        self._directory, self._clock, self.limits = directory, clock, limits or UploadLimits()
        self._reserve = reserve or Reserve()
        self._lock = threading.Lock()  # guards the next four; not held during calls to the file system
        self._held = Counter[_Key]()  # archives that a job or an app is about to need
        self._claimed = set[_Key]()  # archives that a thread writes or removes
        self._sizes = dict[_Key, int]()  # bytes of each archive, pieces that are being written included
        self._hashes = dict[_Key, _Hash]()  # hashes of parts, all of whose pieces came to this process
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.chmod(directory, 0o700)
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                raise PermissionError(1, "it is a link, or belongs to another user")
            self._measure()
        except OSError as error:
            raise BadConfiguration(
                f"{directory}: archives of jobs cannot be kept there: {error.strerror}",
                remedy="give another directory with --uploads-dir",
            ) from error

    def find(self, owner: str, digest: str) -> Upload | None:
        """Return an archive, or its received part; None if there is neither."""
        return _find(self._directory, self._key(owner, digest)) if _DIGEST.fullmatch(digest) else None

    def of_owner(self, owner: str) -> list[Upload]:
        """Return all archives of an owner, the latest used first."""
        return sorted(_all_of(self._of(owner)), key=lambda upload: -upload.used_at)

    def touch(self, owner: str, digest: str) -> Upload:
        """Record that a complete archive is about to be used, so that it is kept for a while.

        Raises:
            NotFound: There is no complete archive.
        """
        there = self.find(owner, digest)
        if there is None or not there.complete:
            raise _not_whole(owner, digest)
        now = self._clock()
        try:
            os.utime(self._of(owner) / digest, (now, now))
        except FileNotFoundError:
            raise _not_whole(owner, digest) from None
        return there

    @contextmanager
    def held(self, owner: str, digest: str) -> Iterator[None]:
        """Protect a complete archive until the job or app that is about to need it is registered.

        Raises:
            NotFound: There is no complete archive, or it is being removed.
        """
        key = self._key(owner, digest)
        with self._lock:
            if key in self._claimed:
                raise _not_whole(owner, digest)
            self._held[key] += 1
        try:
            self.touch(owner, digest)
            yield
        finally:
            with self._lock:
                self._held[key] -= 1
                self._held += Counter()  # removes counts of 0

    @contextmanager
    def going(self, owner: str, digest: str) -> Iterator[None]:
        """Keep an archive from being taken into use while the caller checks whether it is needed, and removes it.

        Raises:
            Conflict: A job or an app is just taking it into use, or a piece of it is being written.
        """
        with self._claim(self._key(owner, digest)):
            yield

    def put(self, owner: str, digest: str, offset: int, size: int, data: bytes) -> Upload:
        """Add a piece of an archive of `size` bytes.

        Raises:
            ValueError: The digest is not a SHA-256.
            OutOfPlace: The received part does not end at `offset`.
            Conflict: Another piece of the archive is being written, or the archive is being removed.
            TooLarge: `size` is outside the limits of one archive.
            TooMuch: The archives of the owner would exceed the owner's limit.
            Mismatch: The complete archive does not match its digest, and was removed.
            NoRoom: The disk is full, or would have less than its reserve; or all archives would exceed their limit.
        """
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is not a SHA-256")
        there = self.find(owner, digest)
        if there is not None and there.complete:
            return there
        key = self._key(owner, digest)
        with self._claim(key):
            there = self.find(owner, digest)
            received = there.received if there is not None else 0
            if offset != received:
                raise OutOfPlace(received)
            self.see_size(size)
            if received + len(data) > size:
                raise Mismatch(f"more than the announced {size} bytes", remedy="send it from its beginning")
            try:
                self._take_room(owner, key, received, size, len(data))
                return self._append(key, data, size)
            except OSError as error:
                raise NoRoom(
                    f"the archive cannot be kept: {error.strerror}",
                    remedy="make room on the scheduler's disk",
                ) from error
            finally:
                self._note(key)

    def open(self, owner: str, digest: str) -> int:
        """Return a descriptor for reading a complete archive.

        Raises:
            NotFound: There is no complete archive.
        """
        self.touch(owner, digest)
        try:
            return os.open(self._of(owner) / digest, _READ)
        except FileNotFoundError:
            raise _not_whole(owner, digest) from None

    def remove(self, owner: str, digest: str) -> Upload:
        """Remove an archive or its received part, inside `going`. Return what was removed.

        Raises:
            NotFound: There is no such archive.
        """
        there = self.find(owner, digest)
        if there is None:
            raise NotFound(
                f"there is no archive {digest[:64]} of {owner or 'yours'}",
                remedy="list your archives: mesos-gpu uploads list",
            )
        self._unlink(self._key(owner, digest), there)
        return there

    def collect(self, needed: Collection[tuple[str, str]] | None = None) -> int:
        """Remove parts whose last piece came too long ago; return the number of removed archives and parts.

        Args:
            needed: Owner and digest of the archives that jobs need; other complete archives that have not been used for
                long are removed as well. None to remove only parts.
        """
        keep = {self._key(owner, digest) for owner, digest in needed or ()}
        removed, now = 0, self._clock()
        for place in self._directory.iterdir():
            for upload in list(_all_of(place)):
                lasts = GRACE_S if not upload.complete else KEEP_S if needed is not None else inf
                key = place.name, upload.digest
                if key not in keep and now - upload.used_at > lasts:
                    removed += self._drop(key, upload)
        self._measure()
        return removed

    def see_size(self, size: int) -> None:
        """Check the size of an archive, in bytes.

        Raises:
            TooLarge: The size is 0 or larger than the limit of one archive.
        """
        most = self.limits.archive_bytes
        if not 0 < size <= most:
            raise TooLarge(
                f"size={size}: an archive has 1 to {most} bytes ({most >> 20} MiB)",
                remedy="exclude files with .mesosgpuignore; provide data by --fetch or --volume",
            )

    def has_room(self, owner: str, digest: str, size: int) -> bool:
        """Return whether an archive of `size` bytes fits without removing another one."""
        there = self.find(owner, digest)
        received = there.received if there is not None else 0
        return self._lack(owner, self._key(owner, digest), received, size) is None

    def make_room(self, owner: str, digest: str, needed: Collection[tuple[str, str]], size: int) -> None:
        """Remove archives that no job needs until an archive of `size` bytes fits.

        Archives of its owner go first, the least recently used one before others. If the owner's own limit is kept,
        archives of other owners follow, beginning with the owner of most bytes.

        Args:
            owner: Owner of the archive that needs room.
            digest: Digest of the archive that needs room.
            needed: Owner and digest of the archives that jobs need.
            size: Size of the archive that needs room, in bytes.

        Raises:
            TooLarge: `size` is larger than the limit of one archive.
        """
        self.see_size(size)
        keep, own, now = {self._key(*archive) for archive in needed}, self._of(owner).name, self._clock()
        taken = self._taken()
        others = sorted(taken.keys() - {own}, key=lambda place_: -taken[place_])
        for place in (own, *others):
            for each in sorted(_all_of(self._directory / place), key=lambda upload: upload.used_at):
                if self.has_room(owner, digest, size):
                    return
                key = place, each.digest
                if key not in keep and each.digest != digest and now - each.used_at > GRACE_S:
                    self._drop(key, each)
            if isinstance(self._lack(owner, self._key(owner, digest), 0, size), TooMuch):
                return  # archives of others do not help

    @contextmanager
    def _claim(self, key: _Key) -> Iterator[None]:
        """Claim an archive for this thread: no other thread may write, remove or take it into use meanwhile.

        Raises:
            Conflict: Another thread writes, removes or takes into use the archive.
        """
        with self._lock:
            if self._held[key] or key in self._claimed:
                what = f"archive {key[1][:64]} is just being uploaded, removed, or taken into use by a job or an app"
                raise Conflict(what, remedy="try again in a second")
            self._claimed.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._claimed.discard(key)

    def _take_room(self, owner: str, key: _Key, received: int, size: int, count: int) -> None:
        """Count a piece of `count` bytes as stored, before it is written.

        Raises:
            TooMuch, NoRoom: There is no room for the rest of the archive.
            OSError: The free space cannot be determined.
        """
        if (lack := self._lack(owner, key, received, size, taken=count)) is not None:
            raise lack

    def _lack(
        self, owner: str, key: _Key, received: int, size: int, *, taken: int | None = None
    ) -> MesosGpuError | None:
        """Return the error why an archive has no room; None if it has room, and then count `taken` bytes as stored."""
        free, most = self._reserve.free(self._directory), self.limits
        with self._lock:
            mine = [n for other, n in self._sizes.items() if other[0] == key[0] and other != key]
            whole = sum(self._sizes.values()) - self._sizes.get(key, 0)
            whose = owner or "jobs"
            if sum(mine) + size > most.owner_bytes or len(mine) >= MAX_ARCHIVES:
                return TooMuch(
                    f"size={size}: archives of {whose} take {sum(mine) >> 20} MiB of {most.owner_bytes >> 20}, and "
                    f"{len(mine)} of {MAX_ARCHIVES}",
                    remedy="wait until jobs that need them have ended: unused archives are removed when room is needed",
                )
            if whole + size > most.all_bytes_for(sum(mine) + size):
                return NoRoom(
                    f"size={size}: archives of all names take {whole >> 20} MiB of {most.all_bytes >> 20}, the last "
                    f"quarter of which is for names with at most {most.archive_bytes >> 20} MiB",
                    remedy="try again when jobs that need them have ended, or ask the operator to raise --all-uploads",
                )
            if free.spare < size - received:
                return NoRoom(
                    f"size={size}: {free.whole >> 20} MiB are free in {self._directory}, of which "
                    f"{free.reserve >> 20} MiB are kept for the scheduler's state",
                    remedy="make room on that file system, or put archives on another one with --uploads-dir, or "
                    "change the scheduler's --disk-reserve",
                )
            if taken is not None:
                self._sizes[key] = received + taken
        return None

    def _append(self, key: _Key, data: bytes, size: int) -> Upload:
        """Append a piece to the file of an archive; if that completes it, check its digest and rename it."""
        place, digest = self._directory / key[0], key[1]
        place.mkdir(mode=0o700, exist_ok=True)
        part = place / (digest + _PART)
        fd = os.open(part, _APPEND, 0o600)
        try:
            before = os.fstat(fd).st_size
            _write(fd, before, data)
            received = before + len(data)
            hashed = self._hashed(key, before, data, there=os.fstat(fd).st_size)
            if received == size or received // _SYNC > before // _SYNC:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        if received < size:
            return Upload(digest, received, complete=False, used_at=self._clock())
        with self._lock:
            self._hashes.pop(key, None)
        if (hashed.digest() if hashed is not None else _digest_of(part)) != digest:
            part.unlink()
            what = f"the received bytes are not the archive sha256:{digest}"
            raise Mismatch(what, remedy="send it again, from its beginning")
        os.rename(part, place / digest)
        return Upload(digest, received, complete=True, used_at=self._clock())

    def _hashed(self, key: _Key, before: int, data: bytes, *, there: int) -> _Hash | None:
        """Return the hash of a part including a further piece.

        None if this process has not received all earlier pieces, because it was restarted or another process wrote
        them. The archive is then hashed from its file when it is complete.
        """
        with self._lock:
            hashed = _Hash() if before == 0 else self._hashes.pop(key, None)
        if hashed is None or hashed.count != before or there != before + len(data):
            return None
        hashed.update(data)
        with self._lock:
            self._hashes[key] = hashed
        return hashed

    def _measure(self) -> None:
        """Read the sizes of archives from the file system, except for archives that are being written."""
        measured = {
            (place.name, upload.digest): upload.received
            for place in self._directory.iterdir()
            for upload in _all_of(place)
        }
        with self._lock:
            measured |= {key: size for key, size in self._sizes.items() if key in self._claimed}
            self._sizes = measured
            self._hashes = {key: hashed for key, hashed in self._hashes.items() if key in measured}

    def _note(self, key: _Key) -> None:
        """Read the size of one archive from the file system."""
        there = _find(self._directory, key)
        with self._lock:
            if there is not None:
                self._sizes[key] = there.received
            else:
                self._sizes.pop(key, None)

    def _taken(self) -> Counter[str]:
        """Return the bytes of archives by the name of their owner's directory."""
        taken = Counter[str]()
        with self._lock:
            for (place, _), size in self._sizes.items():
                taken[place] += size
        return taken

    def _drop(self, key: _Key, upload: Upload) -> bool:
        """Remove an archive unless it is held, claimed, or was used after `upload` was read; return whether it was."""
        try:
            with self._claim(key):
                is_same = _find(self._directory, key) == upload
                if is_same:
                    self._unlink(key, upload)
        except Conflict:
            return False
        return is_same

    def _unlink(self, key: _Key, upload: Upload) -> None:
        path = self._directory / key[0] / (key[1] if upload.complete else key[1] + _PART)
        path.unlink(missing_ok=True)
        with self._lock:
            self._sizes.pop(key, None)
            self._hashes.pop(key, None)

    def _of(self, owner: str) -> Path:
        """Return an owner's directory; its name is a hash, as owners may have characters that file names must not."""
        return self._directory / hashlib.sha256(owner.encode()).hexdigest()[:32]

    def _key(self, owner: str, digest: str) -> _Key:
        return self._of(owner).name, digest


def _find(directory: Path, key: _Key) -> Upload | None:
    place, digest = directory / key[0], key[1]
    # The part is checked first: it is renamed when complete, and could be missed under both names otherwise.
    for name, complete in ((digest + _PART, False), (digest, True)):
        try:
            status = (place / name).stat()
        except FileNotFoundError:
            continue
        return Upload(digest, status.st_size, complete, status.st_mtime)
    return None


def _all_of(place: Path) -> Iterator[Upload]:
    if not place.is_dir():
        return
    for path in place.iterdir():
        name = path.name.removesuffix(_PART)
        if not _DIGEST.fullmatch(name):
            continue
        try:
            status = path.stat()
        except FileNotFoundError:  # it was removed, or completed and thereby renamed
            continue
        yield Upload(name, status.st_size, name == path.name, status.st_mtime)


def _write(fd: int, before: int, data: bytes) -> None:
    """Write a whole piece; after an error truncate the file to its former `before` bytes."""
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(fd, left) :]
    except OSError:
        os.ftruncate(fd, before)
        raise


def _not_whole(owner: str, digest: str) -> NotFound:
    what = f"there is no archive sha256:{digest} of {owner or 'yours'}"
    return NotFound(what, remedy="send it again: mesos-gpu run --upload")


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
