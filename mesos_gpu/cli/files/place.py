"""`JOB:PATH`: a file of a job, as commands take it."""

from dataclasses import dataclass

import click

from mesos_gpu.cli.types import JOB

STREAM = "-"  # in place of a file of this machine: stdin, or stdout


@dataclass(frozen=True, slots=True)
class Place:
    """A file or directory. `job`: whose; "": it is of this machine."""

    job: str
    path: str

    @property
    def is_here(self) -> bool:
        """Whether it is of this machine."""
        return not self.job

    @property
    def name(self) -> str:
        """The name that it has in its directory; "": it is what is in a directory, as of `.` and `..`."""
        name = self.path.rstrip("/").rpartition("/")[2]
        return "" if name in (".", "..", STREAM) else name

    def __str__(self) -> str:
        """Write it as a user does."""
        return self.path if self.is_here else f"{self.job}:{self.path}"


class PlaceType(click.ParamType[Place]):
    """`JOB:PATH`, or where `here` is allowed a path of this machine: one that has a colon begins with `./`."""

    name = "place"

    def __init__(self, *, here: bool) -> None:
        """`here`: whether it may be of this machine; else a `JOB` alone means its sandbox."""
        self._here = here

    def convert(self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Split it."""
        if isinstance(value, Place):
            return value
        job, colon, path = value.partition(":")
        if self._here and (not colon or "/" in job or not job):
            if not value:
                self.fail("a path is to have characters", param, ctx)
            return Place("", value)
        return Place(JOB.convert(job, param, ctx), path)
