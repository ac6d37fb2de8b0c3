"""Secrets of a cluster: chosen once, kept in a directory beside the file that describes it."""

import json
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.files import private
from mesos_gpu.errors import BadConfiguration, Conflict
from mesos_gpu.install import secrets as of_mesos
from mesos_gpu.install.files import HostFile, written

#: USER:PASSWORD by which masters, and schedulers, keep others from what they have in ZooKeeper.
OF_MASTERS: Final = "zookeeper/masters"
OF_SCHEDULERS: Final = "zookeeper/schedulers"


@dataclass(frozen=True, slots=True)
class Kept:
    """The directory; it need not be there yet.

    Attributes:
        directory: Its owner's alone, mode 0700.
        roles: Mesos roles of the scheduler, which lists of access name.
    """

    directory: Path
    roles: tuple[str, ...]

    @property
    def is_there(self) -> bool:
        """Whether secrets have been chosen."""
        return self.directory.exists()

    def names(self, part: str) -> list[str]:
        """Paths of the files of one kind of host, as "master/master-acls.json", whether or not they are there."""
        files = of_mesos.files(self.roles, tokens=False)
        names = [each.path[1:] for each in files if not each.is_settings]
        return [name for name in names if name.startswith(f"{part}/")]

    def text(self, name: str) -> str:
        """A file of it.

        Raises:
            BadConfiguration: It is missing, others could have read it, or it is for other roles.
        """
        if not self.is_there:
            raise BadConfiguration(
                f"{self.directory}: no secrets have been chosen", remedy="mesos-gpu cluster apply"
            )
        text = private.read_text(self.directory / name, name)
        if name == "master/master-acls.json":
            self._see_roles(text)
        return text

    def create(self) -> None:
        """Choose all secrets. It is there as a whole, or not at all.

        Raises:
            Conflict: Something is there already.
            OSError: It cannot be written.
        """
        above = self.directory.parent
        part = Path(tempfile.mkdtemp(prefix=f".{self.directory.name}-", dir=above))  # of mode 0700
        try:
            written(
                [*of_mesos.files(self.roles, tokens=False), *map(_digest, (OF_MASTERS, OF_SCHEDULERS))], part
            )
            for inner in part.rglob("*/"):
                inner.chmod(0o700)
            os.rename(part, self.directory)
        except OSError as error:
            if self.directory.exists():
                raise Conflict(
                    f"{self.directory} is there already", remedy="--secrets names another directory"
                ) from error
            raise
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _see_roles(self, acls: str) -> None:
        try:
            (rule,) = json.loads(acls)["register_frameworks"]
            listed = rule["roles"]["values"]
        except (ValueError, KeyError, TypeError):
            return  # lists of the operator's own
        if not set(self.roles) <= set(listed):
            raise BadConfiguration(
                f"{self.directory} is for the role {', '.join(listed)}, and the file is for {', '.join(self.roles)}",
                remedy="have role: and --mesos-role-of of schedulers' options say the same; or change the lists in "
                f"{self.directory}/master",
            )


def _digest(name: str) -> HostFile:
    user = Path(name).name
    return HostFile(f"/{name}", f"mesos-gpu-{user}:{secrets.token_urlsafe(32)}\n", 0o600)
