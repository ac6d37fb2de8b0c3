"""Scheduler's data for commands about Mesos' roles: queues, nodes of pools, and roles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from mesos_gpu.cli.mesos.master import Master
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.tenancy.checks import NodeFacts
from mesos_gpu.policy.tenancy.pools import pool_of
from mesos_gpu.wire.mesos.reservations import ANY_ROLE, ROLE_OF
from mesos_gpu.wire.tenancy.document import decode

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Node
    from mesos_gpu.cli.client import Client


@dataclass(frozen=True, slots=True)
class Shared:
    """Data of the scheduler.

    Attributes:
        document: Tree of queues.
        nodes: Nodes by pool and agent id.
        models: Number of GPUs by pool and model, including lost nodes, because guarantees hold when they are back.
        framework: Framework id of the scheduler.
        lost: Number of GPUs of lost nodes by host name.
    """

    document: QueueDocument
    nodes: Mapping[str, Mapping[str, "Node"]]
    models: Mapping[str, Mapping[str, int]]
    framework: str
    lost: Mapping[str, int] = field(default_factory=dict)


def shared(client: "Client") -> Shared:
    """Read the data from the scheduler.

    Raises:
        MesosGpuError: Raised by `Client`.
        Unavailable: The scheduler is not registered with a master.
    """
    document = decode(client.call("GET", "/v1/queues", dict))
    if isinstance(document, list):
        raise Unavailable("the scheduler's tree of queues has a format that this release cannot read",
                          remedy="use the command line of the scheduler's release")  # fmt: skip
    framework = client.status()["framework_id"]
    if not framework:
        raise Unavailable(
            "the scheduler is not registered with a master", remedy="find out why with: mesos-gpu status"
        )
    of_agent: dict[str, list[str]] = {}
    for gpu in client.gpus():
        of_agent.setdefault(gpu["agent_id"], []).append(gpu["model"])
    nodes: dict[str, dict[str, Node]] = {}
    models: dict[str, dict[str, int]] = {}
    lost: dict[str, int] = {}
    for node in client.nodes():
        has = of_agent.get(node["agent_id"], [])
        is_lost = node["state"] == "lost"
        if is_lost and not has:
            continue
        place = NodeFacts((), node["attributes"], node["hostname"], node["region"], node["zone"])
        pool = pool_of(document.pools, set(has), place)
        if is_lost:
            lost[node["hostname"]] = lost.get(node["hostname"], 0) + len(has)
        else:
            nodes.setdefault(pool, {})[node["agent_id"]] = node
        for model in has:
            counts = models.setdefault(pool, {})
            counts[model] = counts.get(model, 0) + 1
    return Shared(document, nodes, models, framework, lost)


def roles_of_framework(master: Master, framework: str) -> tuple[str, ...]:
    """Return the roles with which a framework is subscribed.

    Raises:
        Unavailable, BadConfiguration: See `Master`; or the master does not know the framework.
    """
    known = _framework(master, framework)
    return tuple(known.get("roles") or [known.get("role", ANY_ROLE)])


def role_of_framework(master: Master, framework: str) -> dict[str, str]:
    """Return the role of each top-level queue, from the framework's labels.

    Raises:
        Unavailable, BadConfiguration: See `Master`; or the master does not know the framework.
    """
    labels = _framework(master, framework).get("labels", ())
    return {
        label["key"].removeprefix(ROLE_OF): label.get("value", "")
        for label in labels
        if label["key"].startswith(ROLE_OF)
    }


def _framework(master: Master, framework: str) -> Mapping[str, Any]:
    for record in master.get("/master/frameworks", "frameworks"):
        if record["id"] == framework:
            return dict(record)
    raise Unavailable(
        f"the master does not know the scheduler's framework {framework}",
        remedy="give the master that the scheduler is registered with (--master), and credentials that may view "
        "frameworks",
    )


class RoleOf(click.ParamType[tuple[str, str]]):
    """An argument of the form QUEUE=ROLE."""

    name = "QUEUE=ROLE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the queue and the role."""
        if isinstance(value, tuple):
            return value
        queue, _, role = str(value).partition("=")
        if not queue or not role or "/" in role or role.startswith(("-", ".")) or role == ANY_ROLE:
            self.fail(f"{value!r} is not QUEUE=ROLE, for example research=gpu-research", param, ctx)
        return queue, role


def checked_role_of(shared: Shared, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the roles by queue.

    Raises:
        BadConfiguration: A queue is not top-level, or a queue or role is given twice.
    """
    top = {path for path in shared.document.queues if "/" not in path}
    for queue, _ in pairs:
        if queue not in top:
            raise BadConfiguration(
                f"--role-of names {queue!r}, which is not a top-level queue",
                remedy=f"choose one of: {', '.join(sorted(top))}",
            )
    if len({q for q, _ in pairs}) < len(pairs) or len({r for _, r in pairs}) < len(pairs):
        raise BadConfiguration(
            "--role-of names a queue or a role twice", remedy="give each queue a role of its own"
        )
    return dict(pairs)
