"""Conversion of Mesos' v1 JSON. Field names are those of include/mesos/v1/mesos.proto, Mesos 1.11.0."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from mesos_gpu.model.ids import AgentId, OfferId, TaskId
from mesos_gpu.model.jobs.constraint import scalar_text
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.offer import Offer, PortRange, Scalar
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.wire.body import MAX_AMOUNT
from mesos_gpu.wire.mesos import seal
from mesos_gpu.wire.mesos.sound import UNFIT, sound

MAX_MESSAGE: Final = 10_000  # characters of a status message; longer ones are cut
MAX_DATA: Final = 8 << 20  # bytes of status data in base64; longer data is ignored
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_PLACED_BY_MASTER = ("name", "type", "scalar", "ranges", "allocation_info")


def _scalar(resource: Mapping[str, Any]) -> Scalar | None:
    if resource.get("type") != "SCALAR" or "revocable" in resource:
        return None  # Mesos may take revocable resources back at any time
    if resource.get("disk", {}).keys() & {"volume", "persistence", "source"}:
        return None  # only disk of the agent's file system is used, for sandboxes
    return Scalar(resource["name"], float(resource["scalar"]["value"]), _kind(resource))


def _kind(resource: Mapping[str, Any]) -> str:
    kind = {key: value for key, value in resource.items() if key not in _PLACED_BY_MASTER}
    return json.dumps(kind, sort_keys=True, separators=(",", ":"))


def _ports(resource: Mapping[str, Any]) -> list[PortRange]:
    if resource["name"] != "ports" or resource.get("type") != "RANGES" or "revocable" in resource:
        return []
    kind = _kind(resource)
    return [PortRange(int(r["begin"]), int(r["end"]), kind) for r in resource["ranges"].get("range", ())]


def _attribute(attribute: Mapping[str, Any]) -> str:
    """Return an attribute in the form that constraints compare: `text`, `1.5`, `[1-3,7-9]`, `{a,b}` (Marathon's
    Constraints.scala)."""
    match attribute["type"]:
        case "TEXT":
            return str(attribute["text"]["value"])
        case "SCALAR":
            return scalar_text(attribute["scalar"]["value"])
        case "RANGES":
            ranges = sorted((r["begin"], r["end"]) for r in attribute["ranges"].get("range", ()))
            return f"[{','.join(f'{begin}-{end}' for begin, end in ranges)}]"
        case _:
            return f"{{{','.join(sorted(attribute['set'].get('item', ())))}}}"


def _domain(offer: Mapping[str, Any], level: str) -> str | None:
    domain = offer.get("domain", {}).get("fault_domain", {}).get(level)
    return None if domain is None else str(domain["name"])


def _agent_url(offer: Mapping[str, Any]) -> str:
    url = offer.get("url", {})
    address = url.get("address", {})
    host = address.get("ip") or address.get("hostname") or offer["hostname"]
    return f"{url.get('scheme', 'http')}://{host}:{address.get('port', 5051)}"


def offer_from_json(offer: Mapping[str, Any], now: float) -> Offer:
    """Parse an Offer message; unusable resources (other ranges, sets, revocable, volumes) are left out.

    Raises:
        ValueError: The message is not a valid offer.
    """
    try:
        return sound(_offer(offer, now))
    except UNFIT as error:
        raise ValueError(f"an offer cannot be read: {error!r}") from error


def _offer(offer: Mapping[str, Any], now: float) -> Offer:
    resources = offer.get("resources", ())
    scalars = (_scalar(resource) for resource in resources)
    return Offer(
        id=OfferId(offer["id"]["value"]),
        agent_id=AgentId(offer["agent_id"]["value"]),
        hostname=offer["hostname"],
        agent_url=_agent_url(offer),
        resources=tuple(scalar for scalar in scalars if scalar is not None),
        # Of several attributes with one name the first counts, as in Marathon.
        attributes={a["name"]: _attribute(a) for a in reversed(offer.get("attributes", ()))},
        received_at=now,
        region=_domain(offer, "region"),
        zone=_domain(offer, "zone"),
        ports=tuple(ports for resource in resources for ports in _ports(resource)),
        role=str(offer.get("allocation_info", {}).get("role", "")),
    )


def status_from_json(status: Mapping[str, Any], key: bytes = b"") -> Status:
    """Parse a TaskStatus message. Invalid values that executors control (message, data, time) are left out.

    Args:
        status: The TaskStatus message.
        key: Key from which secrets of tasks are derived, to verify the seal; then `proof` is set if the seal is valid.

    Raises:
        ValueError: The message is not a valid status.
    """
    try:
        read = _unsealed(_status(status), key)
        message = read.message[:MAX_MESSAGE].encode(errors="backslashreplace").decode()
        return sound(replace(read, message=message))
    except UNFIT as error:
        raise ValueError(f"a status cannot be read: {error!r}") from error


def _status(status: Mapping[str, Any]) -> Status:
    agent, data, at = status.get("agent_id"), status.get("data", ""), status.get("timestamp")
    return Status(
        task_id=TaskId(status["task_id"]["value"]),
        state=status["state"],
        agent_id=AgentId(agent["value"]) if agent else None,
        reason=status.get("reason", ""),
        source=status.get("source", ""),
        message=status.get("message", ""),
        uuid=status.get("uuid"),
        data=base64.b64decode(data) if len(data) <= MAX_DATA else b"",
        healthy=status.get("healthy"),
        at=float(at) if isinstance(at, int | float) and abs(at) < MAX_AMOUNT else None,
    )


def _unsealed(update: Status, key: bytes) -> Status:
    sealed = seal.opened(update.data)
    if sealed is None:
        return update
    mark, number, body = sealed
    said = seal.Said(
        update.task_id, update.state, number, update.message, update.reason, update.healthy, body.decode()
    )
    true = bool(key) and seal.holds(mark, seal.secret_for(key, update.task_id), said)
    return replace(update, data=body, proof=number if true else None)


def resources_to_json(resources: Iterable[Scalar], ports: Iterable[PortRange] = ()) -> list[dict[str, Any]]:
    """Return Resource messages, with the role and reservation of the offered resources."""
    scalars = [
        {**_read_kind(r.kind), "name": r.name, "type": "SCALAR", "scalar": {"value": r.amount}}
        for r in resources
    ]
    return scalars + [
        {
            **_read_kind(p.kind),
            "name": "ports",
            "type": "RANGES",
            "ranges": {"range": [{"begin": p.begin, "end": p.end}]},
        }
        for p in ports
    ]


@lru_cache(maxsize=1024)
def _read_kind(text: str) -> Mapping[str, Any]:
    """Return role and reservation of a resource; cached, as there are few distinct ones, and messages are not
    modified."""
    kind: Mapping[str, Any] = json.loads(text)
    return kind


def discovery_to_json(name: str, wishes: Sequence[PortWish], numbers: Sequence[int]) -> dict[str, Any]:
    """Return the DiscoveryInfo of a task as in Marathon, for Mesos-DNS and similar services.

    Args:
        name: Name under which the task is found.
        wishes: Requested ports; empty for any ports.
        numbers: Ports of the host that the task has, one for each wish that needs one.
    """
    of_host, ports = iter(numbers), []
    for wish in wishes or [PortWish(None, 0, 0)] * len(numbers):
        number = wish.number if wish.host_port is None else next(of_host)
        more: dict[str, Any] = {} if wish.name is None else {"name": wish.name}
        if wish.labels:
            more |= {"labels": _labels(dict(wish.labels))}
        ports += [{"number": number, "protocol": protocol, **more} for protocol in wish.protocols]
    return {"visibility": "FRAMEWORK", "name": name, "ports": {"ports": ports}}


def _labels(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"labels": [{"key": key, "value": value} for key, value in sorted(labels.items())]}


def start_message() -> bytes:
    """Return the message that tells the executor of a gang's task that all tasks are ready."""
    return json.dumps({"start": True}).encode()


def reset_message(gpu_id: str, request: str) -> bytes:
    """Return the message that asks a node monitor to reset a GPU; each request id is executed once."""
    return json.dumps({"reset": gpu_id, "request": request}).encode()


def removal_message(volumes: Sequence[str]) -> bytes:
    """Return the message that asks a node monitor to remove persistent volumes."""
    return json.dumps({"remove_volumes": [*volumes]}).encode()


def executor_info(
    executor_id: str,
    name: str,
    command: str,
    resources: Iterable[Scalar],
    env: Mapping[str, str],
    labels: Mapping[str, str] = NO_LABELS,
) -> dict[str, Any]:
    """Return the ExecutorInfo of an executor of this package."""
    variables = [{"name": key, "type": "VALUE", "value": value} for key, value in sorted(env.items())]
    return {
        "type": "CUSTOM",
        "executor_id": {"value": executor_id},
        "name": name,
        "source": "mesos_gpu",
        "command": {"value": command, "environment": {"variables": variables}},
        "resources": resources_to_json(resources),
        **({"labels": _labels(labels)} if labels else {}),
    }


def task_of(
    executor: Mapping[str, Any],
    *,
    task_id: str,
    agent_id: str,
    name: str,
    data: bytes,
    resources: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Return the TaskInfo of a task in an executor that may run others."""
    return {
        "name": name,
        "task_id": {"value": task_id},
        "agent_id": {"value": agent_id},
        "resources": resources,
        "data": base64.b64encode(data).decode(),
        "labels": _labels(labels),
        "executor": executor,
    }


def task_info(
    *,
    task_id: str,
    agent_id: str,
    name: str,
    data: bytes,
    resources: Iterable[Scalar],
    ports: Iterable[PortRange] = (),
    executor_id: str,
    executor_name: str,
    executor_command: str,
    executor_resources: Iterable[Scalar],
    executor_env: Mapping[str, str],
    labels: Mapping[str, str],
    discovery: Mapping[str, Any] | None = None,
    kill_grace_s: float | None,
) -> dict[str, Any]:
    """Return the TaskInfo of a task with its own executor, and so its own container and sandbox."""
    info = task_of(
        executor_info(executor_id, executor_name, executor_command, executor_resources, executor_env),
        task_id=task_id,
        agent_id=agent_id,
        name=name,
        data=data,
        resources=resources_to_json(resources, ports),
        labels=labels,
    )
    if discovery is not None:
        info["discovery"] = discovery
    if kill_grace_s is not None:
        info["kill_policy"] = {"grace_period": {"nanoseconds": int(kill_grace_s * 1e9)}}
    return info
