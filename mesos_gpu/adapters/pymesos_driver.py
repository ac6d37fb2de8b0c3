"""`Driver` port on pymesos. All other modules use Mesos' scheduler API through it; fixes are in `_pymesos_mended`."""

import base64
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from mesos_gpu.adapters._pymesos_mended import (
    REMOVED,
    CallFailed,
    FixedDriver,
    NotConnected,
    Scheduler,
    Timings,
)
from mesos_gpu.adapters.master.stream import split_address
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.tasks.unknown import Listed
from mesos_gpu.wire.mesos.labels import listed_from_json
from mesos_gpu.wire.mesos.operator.quotas import roles_of

__all__ = [
    "AgentFailed",
    "CallFailed",
    "Disconnected",
    "DriverEvent",
    "ExecutorFailed",
    "FatalError",
    "FrameworkSettings",
    "NotConnected",
    "Offers",
    "PymesosDriver",
    "Registered",
    "Rescinded",
    "Timings",
    "Update",
]

#: Without GPU_RESOURCES, agents with GPUs are never offered; MULTI_ROLE allows `roles` to be a list.
CAPABILITIES: Final = ("GPU_RESOURCES", "PARTITION_AWARE", "TASK_KILLING_STATE", "MULTI_ROLE")
DEFAULT_TIMINGS: Final = Timings()
logger = logging.getLogger(__name__)
MAX_LISTED: Final = 1 << 30  # tasks; the master's own default is 100


@dataclass(frozen=True, slots=True)
class FrameworkSettings:
    """Settings with which the framework registers at Mesos.

    Args:
        user: Unix user of executors; may not be empty over HTTP.
        failover_timeout_s: Seconds for which Mesos keeps the tasks of a disconnected scheduler.
        framework_id: Framework id of an earlier registration, to take over its tasks; None to register as a new one.
        principal: Principal of the framework; must be the one that authenticates.
    """

    user: str
    name: str
    roles: tuple[str, ...]
    webui_url: str
    hostname: str
    failover_timeout_s: float
    checkpoint: bool = True
    framework_id: str | None = None
    principal: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def framework_info(settings: FrameworkSettings) -> dict[str, Any]:
    """Return a FrameworkInfo of include/mesos/v1/mesos.proto, always with all of `CAPABILITIES`."""
    info: dict[str, Any] = {
        "user": settings.user,
        "name": settings.name,
        "roles": list(settings.roles),
        "capabilities": [{"type": name} for name in CAPABILITIES],
        "webui_url": settings.webui_url,
        "hostname": settings.hostname,
        "failover_timeout": settings.failover_timeout_s,
        "checkpoint": settings.checkpoint,
        "labels": {"labels": [{"key": key, "value": value} for key, value in settings.labels.items()]},
    }
    if settings.framework_id is not None:
        info["id"] = {"value": settings.framework_id}
    if settings.principal is not None:
        info["principal"] = settings.principal
    return info


@dataclass(frozen=True, slots=True)
class Registered:
    """The framework is subscribed and may make calls. `reregistered`: it may have tasks in Mesos, so reconcile."""

    framework_id: str
    master_url: str
    reregistered: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The subscription ended, and with it every offer. The driver reconnects by itself."""


@dataclass(frozen=True, slots=True)
class Offers:
    """New offers, as Offer messages."""

    offers: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Rescinded:
    """An offer is no longer valid."""

    offer_id: str


@dataclass(frozen=True, slots=True)
class Update:
    """A TaskStatus message; one with a `uuid` must be acknowledged, or Mesos sends it again."""

    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentFailed:
    """Mesos removed an agent."""

    agent_id: str


@dataclass(frozen=True, slots=True)
class ExecutorFailed:
    """An executor ended; `status` is that of wait(2), -1 if Mesos did not report it."""

    agent_id: str
    executor_id: str
    status: int


@dataclass(frozen=True, slots=True)
class FatalError:
    """The driver ended for good: the framework was removed, or another scheduler took it over."""

    message: str

    @property
    def is_removed(self) -> bool:
        """Whether the framework was removed; its id is refused for ever then (master.cpp, Master::subscribe)."""
        return REMOVED in self.message.lower()


DriverEvent: TypeAlias = (
    Registered | Disconnected | Offers | Rescinded | Update | AgentFailed | ExecutorFailed | FatalError
)


class _Callbacks(Scheduler):  # type: ignore[misc]  # pymesos has no types
    """Callbacks of pymesos, on its IO thread; each makes one event."""

    def __init__(self, sink: Callable[[DriverEvent], None]) -> None:
        self._sink = sink

    def registered(self, driver: Any, framework_id: Any, master: Any) -> None:
        self._sink(Registered(driver.framework_id, _url(master), reregistered=False))

    def reregistered(self, driver: Any, master: Any) -> None:
        self._sink(Registered(driver.framework_id, _url(master), reregistered=True))

    def disconnected(self, driver: Any) -> None:
        self._sink(Disconnected())

    def resourceOffers(self, driver: Any, offers: list[dict[str, Any]]) -> None:
        self._sink(Offers(offers))

    def offerRescinded(self, driver: Any, offer_id: Any) -> None:
        self._sink(Rescinded(offer_id["value"]))

    def statusUpdate(self, driver: Any, status: dict[str, Any]) -> None:
        self._sink(Update(status))

    def slaveLost(self, driver: Any, agent_id: Any) -> None:
        self._sink(AgentFailed(agent_id["value"]))

    def executorLost(self, driver: Any, executor_id: Any, agent_id: Any, status: int) -> None:
        self._sink(ExecutorFailed(agent_id.get("value", ""), executor_id["value"], status))

    def error(self, driver: Any, message: str) -> None:
        self._sink(FatalError(message))


def _url(master: Mapping[str, Any]) -> str:
    host = master["hostname"]
    shown = f"[{host}]" if ":" in host else host
    return f"{master.get('scheme', 'http')}://{shown}:{master['port']}"


def _ids(values: Sequence[str]) -> list[dict[str, str]]:
    return [{"value": value} for value in values]


class PymesosDriver:
    """`Driver` on Mesos' v1 scheduler API; nothing is sent before `start`.

    Args:
        framework: Settings with which it registers.
        master: `HOST:PORT` of any master (it names the leader), or `zk://…/PATH`.
        sink: Callback for each event, on the driver's thread: it should only enqueue. If it raises, the driver
            subscribes again, and Mesos repeats what was not acknowledged.
        principal: Principal for basic authentication; `framework.principal` by default.
        secret: Secret of the principal.
        timings: Timeouts and pauses of the driver.
        tls: Context that verifies the master, by its name in `master`, a redirect or ZooKeeper; None for plain HTTP.

    Raises:
        BadConfiguration: `master` is not an address, or there is a secret without a principal.

    Every call raises `NotConnected` if there is no subscription or no answer, and `CallFailed` if the master refuses
    it. Calls are neither dropped nor repeated.
    """

    def __init__(
        self,
        framework: FrameworkSettings,
        master: str,
        sink: Callable[[DriverEvent], None],
        *,
        principal: str | None = None,
        secret: str | None = None,
        timings: Timings = DEFAULT_TIMINGS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._roles = framework.roles
        principal = principal or framework.principal
        if secret is not None and principal is None:
            raise BadConfiguration("there is a secret, but no principal", remedy="set the principal as well")
        self._driver = FixedDriver(
            _Callbacks(sink),
            framework_info(framework),
            _normal(master, tls is not None),
            principal=principal,
            secret=secret,
            timings=timings,
            tls=tls,
        )

    def start(self) -> None:
        """Start to subscribe; the event `Registered` reports success. Raises only if ZooKeeper does not answer."""
        self._driver.start()

    def stop(self, *, teardown: bool) -> None:
        """Disconnect, and end all threads and sockets. With `teardown`, Mesos ends all tasks first.

        Raises:
            NotConnected, CallFailed: TEARDOWN was not delivered; the driver has stopped nevertheless.
        """
        self._driver.stop(failover=not teardown)

    def accept(
        self,
        offer_ids: Sequence[str],
        task_infos: Sequence[Mapping[str, Any]],
        *,
        refuse_s: float,
        reserve: Sequence[Mapping[str, Any]] = (),
        unreserve: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """ACCEPT offers of one agent with one LAUNCH; unused resources are refused for `refuse_s`.

        The master does not report reservations that it refuses: tasks that need them end with TASK_ERROR, and the other
        operations are carried out.
        """
        operations: list[dict[str, Any]] = []
        if unreserve:
            operations.append({"type": "UNRESERVE", "unreserve": {"resources": [dict(r) for r in unreserve]}})
        if reserve:
            operations.append({"type": "RESERVE", "reserve": {"resources": [dict(r) for r in reserve]}})
        if task_infos:
            launched = {"task_infos": [dict(info) for info in task_infos]}
            operations.append({"type": "LAUNCH", "launch": launched})
        self._driver.call(
            "ACCEPT",
            accept={
                "offer_ids": _ids(offer_ids),
                "operations": operations,
                "filters": {"refuse_seconds": refuse_s},
            },
        )

    def decline(self, offer_ids: Sequence[str], *, refuse_s: float) -> None:
        """DECLINE offers; their resources are not offered again for `refuse_s`."""
        self._driver.call(
            "DECLINE", decline={"offer_ids": _ids(offer_ids), "filters": {"refuse_seconds": refuse_s}}
        )

    def acknowledge(self, agent_id: str, task_id: str, uuid: str) -> None:
        """ACKNOWLEDGE one status update; `uuid` in base64, as received."""
        self._driver.call(
            "ACKNOWLEDGE",
            acknowledge={"agent_id": {"value": agent_id}, "task_id": {"value": task_id}, "uuid": uuid},
        )

    def kill(self, task_id: str, agent_id: str | None, *, grace_s: float | None) -> None:
        """KILL a task; `grace_s` overrides the grace period of the task's own kill policy."""
        kill: dict[str, Any] = {"task_id": {"value": task_id}}
        if agent_id is not None:
            kill["agent_id"] = {"value": agent_id}
        if grace_s is not None:
            kill["kill_policy"] = {"grace_period": {"nanoseconds": round(grace_s * 1e9)}}
        self._driver.call("KILL", kill=kill)

    def reconcile(self, tasks: Sequence[tuple[str, str | None]]) -> None:
        """RECONCILE (task id, agent id) pairs; an empty list for all tasks that Mesos knows."""
        self._driver.call("RECONCILE", reconcile={"tasks": [_task(*task) for task in tasks]})

    def tasks(self) -> Sequence[Listed]:
        """Return the tasks of the master's `/tasks` and `/slaves`, as statuses of a reconciliation have no labels."""
        framework_id = self._driver.framework_id
        query = urlencode({"framework_id": framework_id or "", "limit": MAX_LISTED})
        try:
            agents = self._driver.get("/master/slaves")["slaves"]
            tasks = self._driver.get(f"/master/tasks?{query}")["tasks"]
            ours = [task for task in tasks if task["framework_id"] == framework_id]
        except (KeyError, TypeError) as error:
            raise NotConnected(f"cannot read the master's list of tasks: {error!r}") from error
        return listed_from_json(ours, agents, logger.error)

    def roles(self) -> Sequence[Role]:
        """Return the master's `/roles` for the roles that the framework is subscribed with."""
        try:
            roles = roles_of(self._driver.get("/master/roles")["roles"])
        except (KeyError, TypeError, ValueError) as error:
            raise NotConnected(f"cannot read the master's roles: {error!r}") from error
        return [roles[name] for name in self._roles if name in roles]

    def message(self, agent_id: str, executor_id: str, data: bytes) -> None:
        """MESSAGE an executor; Mesos delivers it at most once."""
        message = {
            "agent_id": {"value": agent_id},
            "executor_id": {"value": executor_id},
            "data": base64.b64encode(data).decode(),
        }
        self._driver.call("MESSAGE", message=message)

    def shutdown(self, agent_id: str, executor_id: str) -> None:
        """SHUTDOWN an executor; the agent kills it after its own grace period."""
        ids = {"agent_id": {"value": agent_id}, "executor_id": {"value": executor_id}}
        self._driver.call("SHUTDOWN", shutdown=ids)

    def suppress(self, roles: Sequence[str] = ()) -> None:
        """SUPPRESS offers for some roles, or all if none are given, until `revive` or the next registration."""
        self._driver.call("SUPPRESS", **({"suppress": {"roles": list(roles)}} if roles else {}))

    def revive(self, roles: Sequence[str] = ()) -> None:
        """REVIVE offers for some roles, or all if none are given; clears their filters."""
        self._driver.call("REVIVE", **({"revive": {"roles": list(roles)}} if roles else {}))

    def resubscribe(self) -> None:
        """Subscribe again: the master rescinds all offers, and repeats updates that were not acknowledged."""
        self._driver.resubscribe()


def _task(task_id: str, agent_id: str | None) -> dict[str, Any]:
    task = {"task_id": {"value": task_id}}
    return task if agent_id is None else {**task, "agent_id": {"value": agent_id}}


def _normal(master: str, tls: bool) -> str:
    if master.startswith("zk://"):
        return master
    if master.startswith("http://" if tls else "https://"):
        raise BadConfiguration(
            f"{master}: the scheduler uses {'TLS' if tls else 'no TLS'}",
            remedy="give HOST:PORT, and --mesos-tls if the master uses TLS",
        )
    try:
        host, port = split_address(master)
    except ValueError as error:
        raise BadConfiguration(str(error), remedy="give HOST:PORT of a master") from error
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
