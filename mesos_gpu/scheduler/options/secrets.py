"""Where the values of jobs' secrets are."""

from dataclasses import dataclass
from pathlib import Path

import click

from mesos_gpu.adapters.secrets.directory import SecretDirectory
from mesos_gpu.ports import SecretStore
from mesos_gpu.scheduler.options.section import Decorators, Section

OPTIONS: Decorators = (
    click.option(
        "--secrets-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="MESOS_GPU_SECRETS_DIR",
        help="Directory with the values of jobs' secrets, a file each; mode 0700, of this user.",
    ),
)


@dataclass(frozen=True, slots=True)
class SecretOptions:
    """What the command line says of secrets."""

    secrets_dir: Path | None = None

    @property
    def enabled(self) -> bool:
        """Whether jobs may ask for secrets."""
        return self.secrets_dir is not None

    def store(self) -> SecretStore | None:
        """The store, if there is one, and it is fit for secrets.

        Raises:
            BadConfiguration: Others may read it.
        """
        if self.secrets_dir is None:
            return None
        store = SecretDirectory(self.secrets_dir)
        store.see()
        return store


SECRETS = Section(SecretOptions, OPTIONS)
