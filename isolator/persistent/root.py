"""The directory of a host that contains persistent volumes. `MESOS_GPU_PERSISTENT_ROOT` names it; without it the host
keeps none.

Only its owner, who runs executors, may enter it, so no task reaches the volume of another by a path. Each volume is a
directory in it whose name is the UUID of the volume. The user of the tasks owns that directory, and may put anything in
it: names are therefore opened in the open root, and links are not followed.
"""

import contextlib
import errno
import os
import pwd
import re
import stat
import subprocess
from collections.abc import Mapping
from typing import Final, Self

from isolator.host.not_started import NotStarted
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.tasks.assignment import Outcome

SETTING: Final = "MESOS_GPU_PERSISTENT_ROOT"
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PersistentRoot:
    """Open directory of persistent volumes.

    Attributes:
        path: Path of the directory, without symbolic links.
    """

    def __init__(self, path: str) -> None:
        """Open the directory.

        Raises:
            BadConfiguration: It does not exist, or others may enter or change it.
        """
        self.path = os.path.realpath(path)
        try:
            self._fd = os.open(self.path, _DIRECTORY)
        except OSError as error:
            raise _unfit(path, error.strerror or str(error)) from error
        status = os.fstat(self._fd)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            os.close(self._fd)
            raise _unfit(path, f"its owner is uid {status.st_uid} and its mode {mode:04o}")

    @classmethod
    def of(cls, own: Mapping[str, str]) -> Self | None:
        """Open the root that the environment of an executor or a monitor names; None if it names none.

        Raises:
            BadConfiguration: The root cannot be used.
        """
        path = own.get(SETTING, "")
        if path and not path.startswith("/"):
            raise _unfit(path, "it is not an absolute path")
        return cls(path) if path else None

    def __enter__(self) -> Self:
        """Return the root, which is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the root."""
        os.close(self._fd)

    def path_of(self, volume: str) -> str:
        """Return the path of a volume.

        Raises:
            ValueError: The id is not valid.
        """
        return f"{self.path}/{_name(volume)}"

    def make(self, volume: str, user: pwd.struct_passwd, *, is_made: bool) -> tuple[int, int]:
        """Make a volume for a user if it does not exist, and return its device and inode.

        Args:
            volume: Id of the volume.
            user: User of the task.
            is_made: Whether an earlier task has used it, so that it must exist.

        Raises:
            NotStarted: It is gone, or belongs to another user.
            OSError: It cannot be made.
            ValueError: The id is not valid.
        """
        name = _name(volume)
        if not is_made:
            with contextlib.suppress(FileExistsError):  # made for a launch that then failed
                os.mkdir(name, 0o700, dir_fd=self._fd)
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=self._fd)
        except FileNotFoundError:
            why = (
                f"this host has no volume {name} in {self.path} any more; check that its disk is mounted there, or "
                "give the volume up: DELETE of the task with wipe=true, or of the app; of a named volume: mesos-gpu "
                "storage remove NAME"
            )
            raise NotStarted(why, Outcome(infrastructure=True)) from None
        try:
            return self._give_to_user(fd, name, user)
        finally:
            os.close(fd)

    def _give_to_user(self, fd: int, name: str, user: pwd.struct_passwd) -> tuple[int, int]:
        """Give a new volume to the user, or check that an old one is the user's; return its device and inode."""
        status = os.fstat(fd)
        if status.st_uid == os.geteuid() != user.pw_uid and not os.listdir(fd):  # it was made just now
            os.fchown(fd, user.pw_uid, user.pw_gid)
            os.fchmod(fd, 0o700)
        elif status.st_uid != user.pw_uid:
            raise NotStarted(
                f"the volume {name} belongs to uid {status.st_uid}, but the task runs as {user.pw_name} (uid "
                f"{user.pw_uid}); run it as the user that made the volume"
            )
        return status.st_dev, status.st_ino

    def remove(self, volume: str) -> bool:
        """Remove a volume with all that is in it, and return whether it is gone.

        rm(1) does it: it opens each directory in the one above, follows no link, enters no other file system, and goes
        as deep as a task may have made them.

        Raises:
            OSError: rm(1) cannot be started.
            ValueError: The id is not valid.
        """
        name = _name(volume)
        if self._has(name):
            subprocess.run(
                ["rm", "-rf", "--one-file-system", "--", name],
                cwd=f"/proc/{os.getpid()}/fd/{self._fd}",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        return not self._has(name)

    def _has(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
        return True


def _name(volume: str) -> str:
    if not _UUID.fullmatch(volume):
        raise ValueError(f"{volume!r} is not a valid id of a volume")
    return volume


def _unfit(path: str, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"{SETTING} is {path!r}, but volumes cannot be kept there: {why}",
        remedy=f"make a directory that only the user of the agent may enter: install -d -m 700 {path}",
    )
