"""Answers to changes that users have requested, once the engine has applied them."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, get_args

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.arrays import job_in
from mesos_gpu.engine.state import State

T = TypeVar("T")


def answer_to(state: State, change: ev.Change[T]) -> T:
    """Return the answer to a change that the state has applied."""
    answer: T = _ANSWERS[type(change)](state, change)
    return answer


def _nothing(_state: State, _change: ev.Change[None]) -> None:
    """Return nothing, as the answer only confirms that the change was applied."""


#: Function that answers each change; the type of the answer is the parameter of the change's base class.
_ANSWERS: Final[Mapping[type[ev.Change[Any]], Callable[[State, Any], Any]]] = {
    **{kind: _nothing for kind in get_args(ev.Event) if issubclass(kind, ev.Change)},
    **{
        kind: lambda state, change: job_in(state, change.job_id)
        for kind in (
            ev.JobSubmitted, ev.KillRequested, ev.ResizeRequested, ev.ResizeWithdrawn, ev.CheckpointTold, ev.KeepAsked,
            ev.KeepWithdrawn,
        )
    },
    ev.ArrayKillRequested: lambda state, change: job_in(state, change.array_id),
    ev.AppsChanged: lambda state, change: state.apps.deployments.get(change.id),
    ev.DeploymentDeleted: lambda state, change: state.apps.deployments.get(change.new_id),
    ev.AccessChanged: lambda state, _: state.rights.access,
    ev.QueuesChanged: lambda state, _: state.quota.queues,
    ev.ResetRequested: lambda _, change: change.request,
    ev.TokenCreated: lambda state, change: state.rights.tokens[change.token.id],
    **dict.fromkeys(
        (ev.BookingMade, ev.BookingChanged, ev.BookingCancelled),
        lambda state, change: state.calendar.bookings[change.id],
    ),
}  # fmt: skip
