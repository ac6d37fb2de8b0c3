"""Options of the audit log of changes and refusals."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from mesos_gpu.adapters.audit.log import AuditSettings, OnFull
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Section


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Values of the audit options; `audit_dir` None means a directory beside the state."""

    audit_dir: Path | None = None
    audit_size_mib: int = 256
    audit_files: int = 16
    audit_on_full: str = OnFull.REFUSE.value

    def settings(self, state: Path) -> AuditSettings:
        """Return the settings of the audit log for a scheduler with the state file `state`."""
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
            help="Directory of the audit log of changes and refused requests, for `mesos-gpu audit`.",
        ),
        click.option(
            "--audit-size",
            "audit_size_mib",
            default=256,
            show_default=True,
            type=click.IntRange(8),
            metavar="MIB",
            help="Maximum size of the audit log of changes; its oldest file is removed beyond it. Refusals get a "
            "quarter more.",
        ),
        click.option(
            "--audit-files",
            default=16,
            show_default=True,
            type=click.IntRange(2, 256),
            help="Number of files that the audit log of changes is divided into.",
        ),
        click.option(
            "--audit-on-full",
            default=OnFull.REFUSE.value,
            show_default=True,
            type=click.Choice([choice.value for choice in OnFull]),
            help="Action on changes that cannot be recorded: refuse them, or make and count them.",
        ),
    ),
)
