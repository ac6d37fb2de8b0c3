"""`mesos-gpu keep`: exempt a job for a while from being ended for idle GPUs."""

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.types import ACTIVE_JOB, DURATION

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job

_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


def moment_of(text: str, now: datetime) -> float:
    """Return the time that a text means, in seconds since the epoch.

    Args:
        text: Next occurrence of a time of day, such as 18:00, or a time such as 2027-03-01T08:00, local by default.
        now: Local time without offset.

    Raises:
        ValueError: The text is neither.
    """
    if clock := _CLOCK.fullmatch(text.strip()):
        today = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return (today if today > now else today + timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time; write a time of day such as 18:00, or a date and time such as 2027-03-01T08:00"
        ) from None


class _Moment(click.ParamType[float]):
    name = "time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the next occurrence of a time of day, or a date and time."""
        if isinstance(value, int | float):
            return value
        try:
            return moment_of(value, datetime.now())  # local time
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("job_id", metavar="ID", type=ACTIVE_JOB)
@click.option(
    "--until", type=_Moment(), help="Keep the job until this time, such as 18:00 or 2027-03-01T08:00."
)
@click.option("--for", "for_s", type=DURATION, help="Keep the job for this long from now, such as 2h.")
@click.option("--end", is_flag=True, help="End the exemption: idle time counts again from now.")
@json_option
@api_command
def keep(app: App, job_id: str, until: float | None, for_s: float | None, end: bool, as_json: bool) -> None:
    """Keep a job from being ended for idle GPUs.

    If its queue or class ends jobs for idle GPUs, a job is warned first. This exempts it for a while, as long as the
    queue or class permits; then its idle time counts from the start.

    \b
      mesos-gpu keep notebook-1a2b3c4d --until 18:00
    """
    if sum((until is not None, for_s is not None, end)) != 1:
        raise click.UsageError("give one of --until 18:00, --for 2h or --end")
    client = app.client()
    path = f"/v1/jobs/{job_id}/keep"
    if end:
        job: Job = client.call("DELETE", path, _job())
    else:
        job = client.call("PUT", path, _job(), body={"for_s": for_s} if until is None else {"until": until})
    output.document(job) if as_json else output.line(_said(job))


def _job() -> "type[Job]":
    from mesos_gpu.api.spec.shapes import Job  # importing the types costs time

    return Job


def _said(job: "Job") -> str:
    idle = job["idle"]
    if idle is None or idle["keep_until"] is None:
        return f"{job['id']} is no longer exempt from being ended for idle GPUs"
    return f"{job['id']} is kept until {output.stamp(idle['keep_until'])}"
