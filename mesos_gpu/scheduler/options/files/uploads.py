"""Archives of code that submitters send along with their jobs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from mesos_gpu.adapters.uploads.store import UploadLimits, UploadStore
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Section


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """What is kept of them. The directory is None: beside the state. `executor_url`: None: as clients are told."""

    uploads_dir: Path | None = None
    upload_size_mib: int = 512
    user_uploads_mib: int = 4096
    executor_url: str | None = None

    def store(self, state: Path) -> UploadStore:
        """The store of a scheduler with that state file.

        Raises:
            BadConfiguration: Its directory cannot be used.
        """
        directory = self.uploads_dir or state.parent / "uploads"
        return UploadStore(directory, UploadLimits(self.upload_size_mib << 20, self.user_uploads_mib << 20))


UPLOADS: Final = Section(
    UploadOptions,
    (
        click.option(
            "--uploads-dir",
            type=parse.DIRECTORY,
            envvar="MESOS_GPU_UPLOADS",
            show_default="uploads, beside the state",
            help="Directory of the archives that come with jobs, by `mesos-gpu run --upload`.",
        ),
        click.option(
            "--upload-size",
            "upload_size_mib",
            default=512,
            show_default=True,
            type=click.IntRange(1),
            metavar="MIB",
            help="Largest of them that is taken.",
        ),
        click.option(
            "--user-uploads",
            "user_uploads_mib",
            default=4096,
            show_default=True,
            type=click.IntRange(1),
            metavar="MIB",
            help="Most that is kept of a proved name; what no job needs goes first.",
        ),
        click.option(
            "--executor-url",
            metavar="URL",
            help="Where executors find the REST interface, for uploads and channels; default: as --webui-url, and for "
            "channels this host.",
        ),
    ),
)
