"""Options of the store of jobs' secrets."""

from dataclasses import dataclass
from pathlib import Path

import click

from mesos_gpu.adapters.secrets.directory import SecretDirectory
from mesos_gpu.adapters.secrets.vault import Vault, VaultSettings
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.ports import SecretStore
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Decorators, Section

OPTIONS: Decorators = (
    click.option(
        "--secrets-dir",
        type=parse.DIRECTORY,
        envvar="MESOS_GPU_SECRETS_DIR",
        help="Directory with jobs' secrets, one file each; needs mode 0700 and the scheduler's user as owner.",
    ),
    click.option(
        "--vault-url",
        metavar="URL",
        envvar="MESOS_GPU_VAULT_URL",
        help="URL of the Vault with jobs' secrets, instead of a directory; https unless it is on this host.",
    ),
    click.option(
        "--vault-token-file",
        type=parse.FILE,
        envvar="MESOS_GPU_VAULT_TOKEN_FILE",
        help="File with Vault's token, readable only by its owner; read again for each request.",
    ),
    click.option(
        "--vault-mount",
        default="secret",
        show_default=True,
        metavar="PATH",
        help="Mount path of Vault's key-value store.",
    ),
    click.option(
        "--vault-kv",
        "vault_version",
        type=click.Choice(["1", "2"]),
        default="2",
        show_default=True,
        help="Version of Vault's key-value store.",
    ),
    click.option("--vault-namespace", default="", metavar="PATH", help="Namespace of Vault Enterprise."),
    click.option(
        "--vault-cacert", type=parse.FILE, help="PEM file of the authority trusted for Vault's certificate."
    ),
)


@dataclass(frozen=True, slots=True)
class SecretOptions:
    """Values of the options of secrets."""

    secrets_dir: Path | None = None
    vault_url: str | None = None
    vault_token_file: Path | None = None
    vault_mount: str = "secret"
    vault_version: str = "2"
    vault_namespace: str = ""
    vault_cacert: Path | None = None

    @property
    def enabled(self) -> bool:
        """Whether jobs may request secrets."""
        return self.secrets_dir is not None or self.vault_url is not None

    def store(self) -> SecretStore | None:
        """Return the store of secrets after checking that it is usable; None if none is configured.

        Raises:
            BadConfiguration: Other users could read the store, or its options are wrong.
        """
        if self.secrets_dir is not None and self.vault_url is not None:
            raise BadConfiguration(
                "--secrets-dir and --vault-url exclude each other", remedy="remove one of them"
            )
        store: SecretStore | None = None
        if self.secrets_dir is not None:
            store = SecretDirectory(self.secrets_dir)
        elif self.vault_url is not None:
            store = self._vault(self.vault_url)
        if store is not None:
            store.see()
        return store

    def _vault(self, url: str) -> SecretStore:
        """Return the Vault store; its token file is required."""
        if self.vault_token_file is None:
            raise BadConfiguration(
                "--vault-url needs a token", remedy="give its file with --vault-token-file"
            )
        return Vault(
            VaultSettings(
                url,
                self.vault_token_file,
                self.vault_mount,
                int(self.vault_version),
                self.vault_namespace,
                self.vault_cacert,
            )
        )


SECRETS = Section(SecretOptions, OPTIONS)
