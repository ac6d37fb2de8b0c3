"""Secrets of a cluster: generated once, and kept in a directory beside the file that describes it."""

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

#: USER:PASSWORD that protects the data of masters, and of schedulers, in ZooKeeper.
OF_MASTERS: Final = "zookeeper/masters"
OF_SCHEDULERS: Final = "zookeeper/schedulers"


@dataclass(frozen=True, slots=True)
class Kept:
    """Directory of a cluster's secrets, which may not exist yet.

    Attributes:
        directory: Path of the directory, mode 0700.
        roles: Mesos roles of the scheduler, which the access lists name.
    """

    directory: Path
    roles: tuple[str, ...]

    @property
    def is_there(self) -> bool:
        """Whether the secrets have been generated."""
        return self.directory.exists()

    def names(self, part: str) -> list[str]:
        """Return the secret files of a kind of host (e.g. "master/master-acls.json"), whether or not they exist."""
        files = of_mesos.files(self.roles, tokens=False)
        names = [file.path[1:] for file in files if not file.is_settings]
        return [name for name in names if name.startswith(f"{part}/")]

    def text(self, name: str) -> str:
        """Return the text of a secret file.

        Raises:
            BadConfiguration: The file is missing, readable by others, or made for other roles.
        """
        if not self.is_there:
            raise BadConfiguration(
                f"{self.directory}: no secrets have been generated", remedy="mesos-gpu cluster apply"
            )
        text = private.read_text(self.directory / name, name)
        if name == "master/master-acls.json":
            self._check_roles(text)
        return text

    def create(self) -> None:
        """Generate all secrets. The directory appears complete or not at all.

        Raises:
            Conflict: The directory exists already.
            OSError: The directory cannot be written.
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
                    f"{self.directory} exists already", remedy="give another directory with --secrets"
                ) from error
            raise
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _check_roles(self, acls: str) -> None:
        try:
            (rule,) = json.loads(acls)["register_frameworks"]
            listed = rule["roles"]["values"]
        except (ValueError, KeyError, TypeError):
            return  # access lists that the operator wrote
        if not set(self.roles) <= set(listed):
            raise BadConfiguration(
                f"{self.directory} is for the role {', '.join(listed)}, but the file is for {', '.join(self.roles)}",
                remedy="use the same roles in role: and --mesos-role-of of schedulers' options; or change the lists of "
                f"{self.directory}/master",
            )


def _digest(name: str) -> HostFile:
    user = Path(name).name
    return HostFile(f"/{name}", f"mesos-gpu-{user}:{secrets.token_urlsafe(32)}\n", 0o600)
