"""`run --dry-run` and `submit --dry-run`: what would become of jobs; nothing is submitted."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mesos_gpu.cli import output
from mesos_gpu.cli.jobs.commands import explain
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.model.jobs.why import Verdict

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import JobPlan, Relief
    from mesos_gpu.cli.client import Client

_MOST_NAMED: Final = 5  # nodes


def tell_plans(
    client: "Client", requests: Sequence[Mapping[str, Any]], *, as_json: bool, of_options: bool
) -> int:
    """Print what would become of jobs; return the exit code, 1 if one of them can never run.

    Args:
        client: Client of the scheduler.
        requests: Bodies of POST /v1/jobs.
        as_json: Whether a JSON list is printed in place of text.
        of_options: Whether fields are named by the options of `run`.

    Raises:
        Refused: The submission of a job would be refused.
    """
    from mesos_gpu.api.spec.shapes import JobPlan

    plans = [
        client.call("POST", "/v1/plan/jobs", JobPlan, body=request, may_repeat=True) for request in requests
    ]
    if as_json:
        output.document(plans)
    else:
        for plan in plans:
            _tell(plan, _flag if of_options else str)
    return int(any(plan["verdict"] == Verdict.NEVER.value for plan in plans))


def _flag(key: str) -> str:
    return next((field.option.flag for field in FIELDS if field.key == key and field.option), key)


def _tell(plan: "JobPlan", named: Callable[[str], str]) -> None:
    why = plan["why"]
    name = why["job_id"].rpartition("-")[0]
    if plan["verdict"] == Verdict.FITS.value:
        tasks = "" if why["tasks_fit"] is None else "with all its tasks, "
        output.line(f"{name}: fits now, {tasks}on {_nodes(plan['hostnames'])}.")
        return
    explain({**why, "job_id": name})
    if plan["verdict"] == Verdict.NEVER.value:
        changes = ", or ".join(_change(relief, named) for relief in plan["reliefs"])
        output.line(f"To fix: {changes or 'no change of one field is enough'}.")


def _change(relief: "Relief", named: Callable[[str], str]) -> str:
    name, value = named(relief["field"]), relief["value"]
    return f"leave out {name}" if value is None else f"{name} {value} at most"


def _nodes(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
