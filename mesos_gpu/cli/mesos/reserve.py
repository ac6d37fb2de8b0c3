"""`mesos-gpu mesos reserve`: reservations of a pool's agents for the scheduler's role."""

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
_ROLE: Final = click.option("--role", metavar="ROLE", help="Role of the scheduler; default: its only role.")


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of the pool, from the master's operator API.

    Attributes:
        id: Id of the agent.
        hostname: Host name of the agent.
        free: Unreserved resources that are not in use.
        kept: Resources reserved for the pool.
        idle: Resources reserved for the pool that are not in use.
        gpus: Total number of GPUs.
        in_use: Number of unreserved GPUs that are in use.
        of_others: Number of GPUs reserved for other purposes.
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
        """Document of --json."""
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
    """Reservations of a pool's agents, so that other frameworks do not strand its GPUs."""


def _asks(function: _F) -> _F:
    return _POOL(master_options(_ROLE(json_option(api_command(function)))))


@reserve.command()
@_asks
def plan(app: App, pool: str, master: str, credentials: Path | None, role: str | None, as_json: bool) -> None:
    """Show what would be reserved of each agent of POOL, without changing anything.

    Agents are reserved completely, including CPUs and memory: a node whose CPUs other frameworks use cannot use its
    GPUs.

    \b
      mesos-gpu mesos reserve plan default --master 10.0.0.2:5050
    """
    client, ours = Master(master, credentials), shared(app.client())
    _role_of(ours, client, role)
    _tell(list(_agents(ours, client, pool)), as_json=as_json)


@reserve.command()
@yes_option
@_asks
def apply(
    app: App, pool: str, master: str, credentials: Path | None, role: str | None, as_json: bool, yes: bool
) -> None:
    """Make the reservations of `plan` for the scheduler's role.

    Resources in use, by this or other frameworks, cannot be reserved: repeat the command when they are free. An agent
    that refuses keeps its state, and the others are reserved all the same.

    \b
      mesos-gpu mesos reserve apply default --master 10.0.0.2:5050 --mesos-credentials operator.json
    """
    client, ours = Master(master, credentials), shared(app.client())
    role_name = _role_of(ours, client, role)
    todo = [agent for agent in _agents(ours, client, pool) if agent.free]
    if todo:
        output.ask(f"Reserve {counted(len(todo), 'agent')} for role {role_name}?", yes=yes, shown=True)
    _do(
        client, todo, lambda agent: reserving.reserve(agent.id, agent.free, role_name, client.principal, pool)
    )
    after = list(_agents(ours, client, pool))
    _tell(after, as_json=as_json)
    if left := sum(agent.in_use for agent in after):
        output.note(f"{counted(round(left), 'GPU')} are in use: repeat this when they are free")


@reserve.command()
@yes_option
@_POOL
@master_options
@json_option
@api_command
def release(app: App, pool: str, master: str, credentials: Path | None, as_json: bool, yes: bool) -> None:
    """Release the reservations of `apply` for POOL; resources in use stay reserved until they are free.

    \b
      mesos-gpu mesos reserve release default --master 10.0.0.2:5050 --mesos-credentials operator.json
    """
    client, ours = Master(master, credentials), shared(app.client())
    todo = [agent for agent in _agents(ours, client, pool, everywhere=True) if agent.idle]
    if todo:
        output.ask(f"Release the reservations of {counted(len(todo), 'agent')}?", yes=yes, shown=True)
    _do(client, todo, lambda agent: reserving.unreserve(agent.id, agent.idle))
    _tell(list(_agents(ours, client, pool, everywhere=True)), as_json=as_json)


def _role_of(ours: Shared, master: Master, role: str | None) -> str:
    """Return the role to reserve for.

    Raises:
        BadConfiguration: The scheduler does not have the given role, has several, or only the role *.
    """
    roles = roles_of_framework(master, ours.framework)
    if role is None and len(roles) == 1:
        (role,) = roles
    if role not in roles:
        what = f"the scheduler does not have the role {role}" if role else "the scheduler has several roles"
        raise BadConfiguration(what, remedy=f"choose one with --role: {', '.join(roles)}")
    if role == ANY_ROLE:
        raise BadConfiguration(
            "the scheduler has only the role *, for which nothing can be reserved",
            remedy="start it with a role of its own: mesos-gpu scheduler --role gpu",
        )
    return role


def _agents(ours: Shared, master: Master, pool: str, *, everywhere: bool = False) -> Iterator[Agent]:
    """Yield the agents of a pool; with `everywhere` also agents that left it and still have reservations for it.

    Raises:
        NotFound: The pool does not exist.
    """
    nodes = ours.nodes.get(pool, {})
    pools = sorted({*ours.nodes, *(pool.name for pool in ours.document.pools)})
    if pool not in pools and not everywhere:
        raise NotFound(f"no pool is called {pool!r}", remedy=f"choose one of: {', '.join(pools)}")
    for record in master.told("GET_AGENTS").get("agents", ()):
        agent = _agent(record, pool)
        if agent.id in nodes or (everywhere and agent.kept):
            yield agent


def _agent(record: reserving.Resource, pool: str) -> Agent:
    """Return an agent from the master's record, with its resources sorted by reservation and use."""
    total, allocated = record.get("total_resources", ()), record.get("allocated_resources", ())
    kept = [resource for resource in total if reserving.pool_of(resource) == pool]
    taken = [resource for resource in allocated if reserving.pool_of(resource) == pool]
    plain, busy = (
        [resource for resource in some if reserving.is_free(resource)] for some in (total, allocated)
    )
    gpus = reserving.amount(total, "gpus")
    return Agent(
        id=record["agent_info"]["id"]["value"],
        hostname=record["agent_info"]["hostname"],
        free=reserving.less(plain, busy),
        kept=kept,
        idle=reserving.less(kept, taken),
        gpus=gpus,
        in_use=reserving.amount(busy, "gpus"),
        of_others=gpus - reserving.amount(kept, "gpus") - reserving.amount(plain, "gpus"),
    )


def _do(master: Master, agents: Sequence[Agent], call: Callable[[Agent], dict[str, Any]]) -> None:
    """Send a call for each agent; refusals are collected, and raised after all were tried."""
    refused: list[str] = []
    for agent in agents:
        try:
            master.call(call(agent))
        except Conflict as error:
            refused.append(f"{agent.hostname}: {error.what}")
    if refused:
        raise Conflict("; ".join(refused), remedy="the resources were used or offered meanwhile: try again")


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
