"""Options of uploaded code archives."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from mesos_gpu.adapters.disk.room import Reserve
from mesos_gpu.adapters.uploads.store import UploadLimits, UploadStore
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Section


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """Options on uploaded archives.

    Attributes:
        uploads_dir: Directory of the archives; None for a directory beside the state.
        upload_size_mib: Size limit of one archive, in MiB.
        user_uploads_mib: Size limit of all archives of one user, in MiB.
        all_uploads_mib: Size limit of all archives, in MiB.
        executor_url: URL from which executors get archives; None for the scheduler's advertised URL.
    """

    uploads_dir: Path | None = None
    upload_size_mib: int = 512
    user_uploads_mib: int = 4096
    all_uploads_mib: int = 16384
    executor_url: str | None = None

    def store(self, state: Path, reserve: Reserve, *, is_copy: bool = False) -> UploadStore:
        """Return the store of archives of a scheduler.

        Args:
            state: Path of the scheduler's state file.
            reserve: Free space that archives leave on their file system.
            is_copy: Whether this scheduler is a standby, which only copies the leader's archives.

        Raises:
            BadConfiguration: The archive directory cannot be used.
        """
        directory = self.uploads_dir or state.parent / "uploads"
        limits = UploadLimits(
            self.upload_size_mib << 20,
            self.user_uploads_mib << 20,
            self.all_uploads_mib << 20,
            keeps_quarter=not is_copy,
        )
        return UploadStore(directory, limits, reserve=reserve)


UPLOADS: Final = Section(
    UploadOptions,
    (
        click.option(
            "--uploads-dir",
            type=parse.DIRECTORY,
            envvar="MESOS_GPU_UPLOADS",
            show_default="uploads, beside the state",
            help="Directory of code archives uploaded with jobs, by `mesos-gpu run --upload`.",
        ),
        click.option(
            "--upload-size",
            "upload_size_mib",
            default=512,
            show_default=True,
            type=click.IntRange(1),
            metavar="MIB",
            help="Maximum size of one archive.",
        ),
        click.option(
            "--user-uploads",
            "user_uploads_mib",
            default=4096,
            show_default=True,
            type=click.IntRange(1),
            metavar="MIB",
            help="Maximum size of all archives of an authenticated user; archives that no job needs are removed first.",
        ),
        click.option(
            "--all-uploads",
            "all_uploads_mib",
            default=16384,
            show_default=True,
            type=click.IntRange(1),
            metavar="MIB",
            help="Maximum size of all archives; the last quarter is for users with at most --upload-size.",
        ),
        click.option(
            "--executor-url",
            metavar="URL",
            help="URL of the REST interface for executors, for uploads and channels; default: --webui-url, and this "
            "host for "
            "channels.",
        ),
    ),
)
