"""What commands about Mesos' roles read of the scheduler: the tree, the nodes of its pools, its role."""

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
    """The scheduler's side.

    Attributes:
        document: The tree of queues.
        nodes: By pool, its nodes by the ids of their agents.
        models: Number of GPUs by pool and model, those of lost nodes included: their guarantees hold when they
            are back.
        framework: The scheduler's id at the master.
        lost: Number of GPUs of lost nodes by host name.
    """

    document: QueueDocument
    nodes: Mapping[str, Mapping[str, "Node"]]
    models: Mapping[str, Mapping[str, int]]
    framework: str
    lost: Mapping[str, int] = field(default_factory=dict)


def shared(client: "Client") -> Shared:
    """Ask the scheduler.

    Raises:
        MesosGpuError: As of `Client`.
        Unavailable: It is not registered.
    """
    document = decode(client.call("GET", "/v1/queues", dict))
    if isinstance(document, list):
        raise Unavailable("the scheduler's tree of queues cannot be read here: its version is another",
                          remedy="use the command line of the scheduler's release")  # fmt: skip
    framework = client.status()["framework_id"]
    if not framework:
        raise Unavailable("the scheduler is not registered", remedy="see why: mesos-gpu status")
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
    """The roles that a framework is subscribed with.

    Raises:
        Unavailable, BadConfiguration: As of `Master`; the master does not know it.
    """
    known = _framework(master, framework)
    return tuple(known.get("roles") or [known.get("role", ANY_ROLE)])


def role_of_framework(master: Master, framework: str) -> dict[str, str]:
    """By top queue, the role that a framework says that it has for it.

    Raises:
        Unavailable, BadConfiguration: As of `Master`; the master does not know it.
    """
    labels = _framework(master, framework).get("labels", ())
    return {
        each["key"].removeprefix(ROLE_OF): each.get("value", "")
        for each in labels
        if each["key"].startswith(ROLE_OF)
    }


def _framework(master: Master, framework: str) -> Mapping[str, Any]:
    for each in master.get("/master/frameworks", "frameworks"):
        if each["id"] == framework:
            return dict(each)
    raise Unavailable(
        f"the master does not know the scheduler's framework {framework}",
        remedy="name the master that the scheduler is registered with, and a principal that may see frameworks",
    )


class RoleOf(click.ParamType[tuple[str, str]]):
    """QUEUE=ROLE."""

    name = "QUEUE=ROLE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Both names; what is wrong with them is said."""
        if isinstance(value, tuple):
            return value
        queue, _, role = str(value).partition("=")
        if not queue or not role or "/" in role or role.startswith(("-", ".")) or role == ANY_ROLE:
            self.fail(f"{value!r} is not of the form QUEUE=ROLE, as research=gpu-research", param, ctx)
        return queue, role


def checked_role_of(shared: Shared, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Pairs by queue.

    Raises:
        BadConfiguration: One is no top queue of the tree, is named twice, or a role is.
    """
    top = {path for path in shared.document.queues if "/" not in path}
    for queue, _ in pairs:
        if queue not in top:
            raise BadConfiguration(
                f"--role-of names {queue!r}, which is no top queue",
                remedy=f"there are: {', '.join(sorted(top))}",
            )
    if len({q for q, _ in pairs}) < len(pairs) or len({r for _, r in pairs}) < len(pairs):
        raise BadConfiguration(
            "--role-of names a queue or a role twice", remedy="give each queue a role of its own"
        )
    return dict(pairs)
