"""`mesos-gpu keep`: a job that is not ended for GPUs that do nothing, for a while."""

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
    """A moment that is meant, seconds since the epoch.

    Args:
        text: A time of day, the next one to come, as 18:00; or a moment as 2027-03-01T08:00, here unless it says where.
        now: The local time, without its offset.

    Raises:
        ValueError: It is neither.
    """
    if clock := _CLOCK.fullmatch(text.strip()):
        today = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return (today if today > now else today + timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is no time; write a time of day, as 18:00, or a moment, as 2027-03-01T08:00"
        ) from None


class _Moment(click.ParamType[float]):
    name = "time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a time of day, the next to come, or a moment."""
        if isinstance(value, int | float):
            return value
        try:
            return moment_of(value, datetime.now())  # local: what a clock on the wall shows
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("job_id", metavar="ID", type=ACTIVE_JOB)
@click.option("--until", type=_Moment(), help="Until that time, as 18:00 or 2027-03-01T08:00.")
@click.option("--for", "for_s", type=DURATION, help="For so long from now, as 2h.")
@click.option("--end", is_flag=True, help="Keep it no longer: its idle time counts from now.")
@json_option
@api_command
def keep(app: App, job_id: str, until: float | None, for_s: float | None, end: bool, as_json: bool) -> None:
    """Keep a job from being ended for GPUs that do nothing.

    Where the queue or the class of a job has its idle GPUs returned, it is warned first. For a while, as long as they
    let it, it is kept from that; then its idle time counts anew.

    \b
      mesos-gpu keep notebook-1a2b3c4d --until 18:00
    """
    if sum((until is not None, for_s is not None, end)) != 1:
        raise click.UsageError("say how long: --until 18:00, or --for 2h; or --end")
    client = app.client()
    path = f"/v1/jobs/{job_id}/keep"
    if end:
        job: Job = client.call("DELETE", path, _job())
    else:
        job = client.call("PUT", path, _job(), body={"for_s": for_s} if until is None else {"until": until})
    output.document(job) if as_json else output.line(_said(job))


def _job() -> "type[Job]":
    from mesos_gpu.api.spec.shapes import Job  # its types cost each start

    return Job


def _said(job: "Job") -> str:
    idle = job["idle"]
    if idle is None or idle["keep_until"] is None:
        return f"{job['id']} is kept no longer"
    return f"{job['id']} is kept until {output.stamp(idle['keep_until'])}"
