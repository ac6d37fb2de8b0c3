"""The record of who changed what."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from mesos_gpu.adapters.audit.log import AuditSettings, OnFull
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Section


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What is kept of changes and refusals. The directory is None: beside the state."""

    audit_dir: Path | None = None
    audit_size_mib: int = 256
    audit_files: int = 16
    audit_on_full: str = OnFull.REFUSE.value

    def settings(self, state: Path) -> AuditSettings:
        """The adapter's settings, of a scheduler with that state file."""
        directory = self.audit_dir or state.parent / "audit"
        return AuditSettings(
            directory, self.audit_size_mib << 20, self.audit_files, OnFull(self.audit_on_full)
        )


AUDIT: Final = Section(
    AuditOptions,
    (
        click.option(
            "--audit-dir",
            type=parse.DIRECTORY,
            envvar="MESOS_GPU_AUDIT",
            show_default="audit, beside the state",
            help="Directory of the record of who changed what and what was refused, for `mesos-gpu audit`.",
        ),
        click.option(
            "--audit-size",
            "audit_size_mib",
            default=256,
            show_default=True,
            type=click.IntRange(8),
            metavar="MIB",
            help="Size of its changes beyond which its oldest file is removed; refusals have a quarter of it beside.",
        ),
        click.option(
            "--audit-files",
            default=16,
            show_default=True,
            type=click.IntRange(2, 256),
            help="Into how many files that is divided.",
        ),
        click.option(
            "--audit-on-full",
            default=OnFull.REFUSE.value,
            show_default=True,
            type=click.Choice([choice.value for choice in OnFull]),
            help="Treatment of changes that cannot be recorded: refused, or made and only counted.",
        ),
    ),
)
