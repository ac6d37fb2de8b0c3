"""Routes of budgets: their standings, and additional grants."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.requests import Flag, read_of, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.queues import sees_budget
from mesos_gpu.api.spec import usage as shapes
from mesos_gpu.engine.events import BudgetGranted
from mesos_gpu.engine.reading.queues import budget_periods, budget_standings
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import EVERYBODY, Period
from mesos_gpu.model.usage import MS
from mesos_gpu.policy.accounts.budget import Standing
from mesos_gpu.wire.checking import Problem, is_number, object_of, show

_HOUR: Final = 1000 * MS * 3600  # thousandths times milliseconds
PAST: Final = Flag("past")
_KNOWN: Final = ("queue", "user", "gpu_hours")
_MAX_HOURS: Final = 1e9
_MAX_LENGTH: Final = 256  # of a name


class BudgetHandlers:
    """HTTP handlers of budgets."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def list(self, request: Request) -> Response:
        """GET /v1/budgets: the visible budgets."""
        rights = rights_of(request)
        past = PAST.of(request)
        standings = await result_of(
            self._scheduler.read_copy(lambda view: budget_periods(view) if past else budget_standings(view))
        )
        body: shapes.Budgets = {
            "budgets": [shown(standing) for standing in standings if sees_budget(rights, standing.use)]
        }
        return json_answer(body)

    async def grant(self, request: Request) -> Response:
        """POST /v1/budgets/grants: add to a budget in its current period."""
        queue, user, hours = _granted(await read_of(request, object_of))
        await result_of(self._scheduler.request(BudgetGranted(queue, user, round(hours * _HOUR))))
        standings = await result_of(self._scheduler.read_copy(lambda view: budget_standings(view)))
        return json_answer(
            next(
                shown(standing)
                for standing in standings
                if (standing.use.queue, standing.use.user) == (queue, user)
            )
        )


def _granted(body: dict[str, Any]) -> tuple[str, str, float]:
    """Return queue, user and GPU hours of a grant.

    Raises:
        Refusal: The body is not valid.
    """
    problems = [Problem(f"/{key}", "there is no such field") for key in body if key not in _KNOWN]
    queue, user, hours = body.get("queue"), body.get("user"), body.get("gpu_hours")
    for key, value in (("queue", queue), ("user", user)):
        missing = key == "user" and value is None
        if not missing and not (isinstance(value, str) and 0 < len(value) <= _MAX_LENGTH):
            problems.append(Problem(f"/{key}", f"must be a name, got {show(value)}"))
    if not is_number(hours) or not -_MAX_HOURS <= float(hours or 0) <= _MAX_HOURS:
        why = f"must be a number of GPU hours from {-_MAX_HOURS:g} to {_MAX_HOURS:g}, got {show(hours)}"
        problems.append(Problem("/gpu_hours", why))
    if problems:
        raise invalid(*problems)
    return str(queue), EVERYBODY if user is None else str(user), float(hours or 0)


def shown(standing: Standing) -> shapes.BudgetStanding:
    """Return the standing of a budget as the REST interface shows it."""
    use, budget, empty_at = standing.use, standing.budget, standing.empty_at_ms()
    return {
        "queue": use.queue,
        "user": None if use.user == EVERYBODY else use.user,
        "begins": use.begins_ms / MS,
        "ends": use.ends_ms / MS,
        "gpu_hours": budget.milli_s * MS / _HOUR,
        "carried_hours": use.carried / _HOUR,
        "granted_hours": use.granted / _HOUR,
        "used_hours": max(standing.used, 0) / _HOUR,
        "left_hours": standing.left / _HOUR,
        "used_percent": max(standing.percent, 0),
        "told_percent": use.told_percent,
        "rate_gpus": standing.rate / WHOLE,
        "empty": standing.empty,
        "empty_at": None if empty_at is None else empty_at / MS,
        "on_empty": budget.on_empty.value,
        "safe": budget.safe,
        "next_period": None if budget.period is Period.ONCE else use.ends_ms / MS,
    }
