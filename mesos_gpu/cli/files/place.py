"""Arguments of the form `JOB:PATH`: files of a job."""

from dataclasses import dataclass

import click

from mesos_gpu.cli.types import JOB

STREAM = "-"  # stands for stdin or stdout instead of a local file


@dataclass(frozen=True, slots=True)
class Place:
    """A file or directory; `job` is "" for one of this machine."""

    job: str
    path: str

    @property
    def is_here(self) -> bool:
        """Whether the place is on this machine."""
        return not self.job

    @property
    def name(self) -> str:
        """Name of the file in its directory; "" for the contents of a directory, such as `.` and `..`."""
        name = self.path.rstrip("/").rpartition("/")[2]
        return "" if name in (".", "..", STREAM) else name

    def __str__(self) -> str:
        """Return the place as a user writes it."""
        return self.path if self.is_here else f"{self.job}:{self.path}"


class PlaceType(click.ParamType[Place]):
    """Argument `JOB:PATH`, or with `here` also a local path; a local path with a colon begins with `./`.

    Without `here`, a `JOB` alone means its sandbox.
    """

    name = "place"

    def __init__(self, *, here: bool) -> None:
        self._here = here

    def convert(self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Return the place of an argument."""
        if isinstance(value, Place):
            return value
        job, colon, path = value.partition(":")
        if self._here and (not colon or "/" in job or not job):
            if not value:
                self.fail("a path must not be empty", param, ctx)
            return Place("", value)
        return Place(JOB.convert(job, param, ctx), path)
