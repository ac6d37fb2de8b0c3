"""`mesos-gpu mesos reserve`: whole agents of a pool, reserved for the scheduler's role."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.mesos.master import Master, master_options
from mesos_gpu.cli.mesos.tree import Shared, roles_of_framework, shared
from mesos_gpu.errors import BadConfiguration, Conflict, NotFound
from mesos_gpu.model.words import counted
from mesos_gpu.wire.mesos.operator import reserving
from mesos_gpu.wire.mesos.reservations import ANY_ROLE

_F = TypeVar("_F", bound=Callable[..., Any])
_HEADERS: Final = ("NODE", "GPUS", "RESERVED", "TO RESERVE", "IN USE", "OF OTHERS")
_POOL: Final = click.argument("pool")
_ROLE: Final = click.option("--role", metavar="ROLE", help="Role of the scheduler; default: its only one.")


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of the pool, as the master has it. Resources are of its API.

    Attributes:
        id: Of it.
        hostname: Of it.
        free: Reserved for nobody, and in nobody's use.
        kept: Reserved for the pool.
        idle: What of that nobody uses.
        gpus: Of all it has.
        in_use: GPUs that are reserved for nobody, and in use.
        of_others: GPUs that are reserved otherwise.
    """

    id: str
    hostname: str
    free: Sequence[reserving.Resource]
    kept: Sequence[reserving.Resource]
    idle: Sequence[reserving.Resource]
    gpus: float
    in_use: float
    of_others: float

    @property
    def document(self) -> dict[str, object]:
        """What --json prints of it."""
        return {
            "agent_id": self.id,
            "hostname": self.hostname,
            "gpus": self.gpus,
            "reserved_gpus": reserving.amount(self.kept, "gpus"),
            "to_reserve_gpus": reserving.amount(self.free, "gpus"),
            "in_use_gpus": self.in_use,
            "of_others_gpus": self.of_others,
        }


@click.group()
def reserve() -> None:
    """Reservations of whole agents of a pool, so that other frameworks do not strand its GPUs."""


def _asks(function: _F) -> _F:
    return _POOL(master_options(_ROLE(json_option(api_command(function)))))


@reserve.command()
@_asks
def plan(app: App, pool: str, master: str, credentials: Path | None, role: str | None, as_json: bool) -> None:
    """Say what of each agent of POOL would be reserved; nothing is changed.

    All of an agent is reserved, its processors and memory, too: a node whose processors others have taken cannot use
    its GPUs.

    \b
      mesos-gpu mesos reserve plan default --master 10.0.0.2:5050
    """
    asked, ours = Master(master, credentials), shared(app.client())
    _role_of(ours, asked, role)
    _tell(list(_agents(ours, asked, pool)), as_json=as_json)


@reserve.command()
@yes_option
@_asks
def apply(
    app: App, pool: str, master: str, credentials: Path | None, role: str | None, as_json: bool, yes: bool
) -> None:
    """Reserve what `plan` says for the scheduler's role.

    What is in use cannot be reserved, be it ours or others': run it again when that has ended. An agent that refuses
    keeps what it had, and the others are done all the same.

    \b
      mesos-gpu mesos reserve apply default --master 10.0.0.2:5050 --mesos-credentials operator.json
    """
    asked, ours = Master(master, credentials), shared(app.client())
    whose = _role_of(ours, asked, role)
    todo = [agent for agent in _agents(ours, asked, pool) if agent.free]
    if todo:
        output.ask(f"Reserve {counted(len(todo), 'agent')} for role {whose}?", yes=yes, shown=True)
    _do(asked, todo, lambda agent: reserving.reserve(agent.id, agent.free, whose, asked.principal, pool))
    after = list(_agents(ours, asked, pool))
    _tell(after, as_json=as_json)
    if left := sum(agent.in_use for agent in after):
        output.note(f"{counted(round(left), 'GPU')} in use: run this again when what has them has ended")


@reserve.command()
@yes_option
@_POOL
@master_options
@json_option
@api_command
def release(app: App, pool: str, master: str, credentials: Path | None, as_json: bool, yes: bool) -> None:
    """Give what `apply` has reserved for POOL back to everybody; what is in use stays reserved until it ends.

    \b
      mesos-gpu mesos reserve release default --master 10.0.0.2:5050 --mesos-credentials operator.json
    """
    asked, ours = Master(master, credentials), shared(app.client())
    todo = [agent for agent in _agents(ours, asked, pool, everywhere=True) if agent.idle]
    if todo:
        output.ask(f"Give {counted(len(todo), 'agent')} back to everybody?", yes=yes, shown=True)
    _do(asked, todo, lambda agent: reserving.unreserve(agent.id, agent.idle))
    _tell(list(_agents(ours, asked, pool, everywhere=True)), as_json=as_json)


def _role_of(ours: Shared, master: Master, role: str | None) -> str:
    """The role that reservations are for.

    Raises:
        BadConfiguration: The scheduler has not that one, has several, or has none of its own.
    """
    roles = roles_of_framework(master, ours.framework)
    if role is None and len(roles) == 1:
        (role,) = roles
    if role not in roles:
        what = f"the scheduler has not the role {role}" if role else "the scheduler has several roles"
        raise BadConfiguration(what, remedy=f"--role names one of: {', '.join(roles)}")
    if role == ANY_ROLE:
        raise BadConfiguration(
            "the scheduler has the role *, for which nothing can be reserved",
            remedy="start it with a role of its own: mesos-gpu scheduler --role gpu",
        )
    return role


def _agents(ours: Shared, master: Master, pool: str, *, everywhere: bool = False) -> Iterator[Agent]:
    """Agents of a pool; `everywhere`: also those that are no longer in it and have reservations for it.

    Raises:
        NotFound: There is no such pool.
    """
    nodes = ours.nodes.get(pool, {})
    known = sorted({*ours.nodes, *(each.name for each in ours.document.pools)})
    if pool not in known and not everywhere:
        raise NotFound(f"there is no pool {pool!r}", remedy=f"there are: {', '.join(known)}")
    for each in master.told("GET_AGENTS").get("agents", ()):
        agent = _agent(each, pool)
        if agent.id in nodes or (everywhere and agent.kept):
            yield agent


def _agent(told: reserving.Resource, pool: str) -> Agent:
    total, allocated = told.get("total_resources", ()), told.get("allocated_resources", ())
    kept = [each for each in total if reserving.pool_of(each) == pool]
    taken = [each for each in allocated if reserving.pool_of(each) == pool]
    plain, busy = ([each for each in some if reserving.is_free(each)] for some in (total, allocated))
    gpus = reserving.amount(total, "gpus")
    return Agent(
        id=told["agent_info"]["id"]["value"],
        hostname=told["agent_info"]["hostname"],
        free=reserving.less(plain, busy),
        kept=kept,
        idle=reserving.less(kept, taken),
        gpus=gpus,
        in_use=reserving.amount(busy, "gpus"),
        of_others=gpus - reserving.amount(kept, "gpus") - reserving.amount(plain, "gpus"),
    )


def _do(master: Master, agents: Sequence[Agent], call: Callable[[Agent], dict[str, Any]]) -> None:
    """Do it on each; those that refuse are told, and the last error is raised after all were tried."""
    refused: list[str] = []
    for agent in agents:
        try:
            master.call(call(agent))
        except Conflict as error:
            refused.append(f"{agent.hostname}: {error.what}")
    if refused:
        raise Conflict("; ".join(refused), remedy="it is in use by now, or was offered again: try again")


def _tell(agents: Sequence[Agent], *, as_json: bool) -> None:
    if as_json:
        output.document({"agents": [agent.document for agent in agents]})
        return
    rows = [
        (agent.hostname, agent.gpus, reserving.amount(agent.kept, "gpus"), reserving.amount(agent.free, "gpus"),
         agent.in_use, agent.of_others)
        for agent in agents
    ]  # fmt: skip
    fit = Fit(cut=("NODE",), leave=("OF OTHERS",), hosts=("NODE",))
    output.table(_HEADERS, rows, empty="The pool has no agents.", fit=fit)
