"""Fields of Marathon 1.11's app (its RAML) and of mesos_gpu, as tables for parsing and writing; pure functions."""

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesos_gpu.model.apps.app import (
    Check,
    Command,
    DiskType,
    DockerParameter,
    EngineType,
    ExecutorResources,
    HttpScheme,
    IpcInfo,
    IpcMode,
    KillSelection,
    LinuxInfo,
    LostBehavior,
    Network,
    NetworkMode,
    Persistent,
    PortCheck,
    PortDefinition,
    PortMapping,
    PortProtocol,
    ReadinessCheck,
    Residency,
    ResourceLimits,
    Seccomp,
    SecretRef,
    UnreachableStrategy,
    UpgradeStrategy,
    Volume,
    VolumeMode,
)
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.constraint import Constraint
from mesos_gpu.model.jobs.fields import Gpus
from mesos_gpu.model.jobs.healthcheck import HealthCheck, IpProtocol, Protocol
from mesos_gpu.model.jobs.job import GPUS
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.wire.constraints import constraint_of
from mesos_gpu.wire.marathon.gpu import GPU
from mesos_gpu.wire.marathon.kinds import (
    Choice,
    Field,
    Flag,
    Keyed,
    Kind,
    ListOf,
    MapOf,
    Number,
    Record,
    Refused,
    Text,
    TextOr,
    Wrapped,
)
from mesos_gpu.wire.marathon.problems import Report
from mesos_gpu.wire.shares import OF_APPS, gpu_milli

_UNLIMITED: Final = "unlimited"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NETWORK_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9_]*[a-z0-9])?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)")

_SECONDS: Final = Number(least=0, whole=True)
_PORT: Final = Number(least=0, most=65535, whole=True)
_LABELS: Final = MapOf(Text())
_SHARE: Final = Number(least=0, most=1)
_PATH: Final = Text(least=1, most=1024)
_SCHEME: Final = Choice(HttpScheme)
_PROTOCOL: Final = Choice(PortProtocol)
_MODE: Final = Choice(VolumeMode)


class Strategy(Enum):
    """Value of an unreachableStrategy that is a string."""

    DISABLED = "disabled"


class DockerNetwork(Enum):
    """Network of an app in the form before Marathon 1.5."""

    BRIDGE = "BRIDGE"
    HOST = "HOST"
    NONE = "NONE"
    USER = "USER"


@dataclass(frozen=True, slots=True)
class _ConstraintKind:
    """Kind of a constraint, `["rack", "GROUP_BY", "3"]`."""

    def read(self, value: object, report: Report) -> Constraint | None:
        words = ListOf(Text()).read(value, report)
        if words is None or None in words:
            return None
        constraint = constraint_of(list(words))
        if isinstance(constraint, str):
            report.wrong(constraint)
            return None
        return constraint

    def write(self, value: Constraint) -> list[str]:
        return value.as_list()


@dataclass(frozen=True, slots=True)
class _Limit:
    """Kind of a limit: a number, or "unlimited" for infinity."""

    def read(self, value: object, report: Report) -> float | None:
        if value == _UNLIMITED:
            return math.inf
        number: float | None = Number(least=0).read(value, report)
        return number

    def write(self, value: float) -> object:
        return _UNLIMITED if value == math.inf else Number().write(value)


@dataclass(frozen=True, slots=True)
class _Gpus:
    """Kind of a number of GPUs or a fraction of one, in thousandths."""

    of: Gpus

    def read(self, value: object, report: Report) -> int | None:
        if Number().read(value, report) is None:
            return None
        asked = gpu_milli(value, self.of, OF_APPS)
        if isinstance(asked, str):
            report.wrong(asked)
            return 0
        return asked

    def write(self, value: int) -> object:
        return number_of(value)


@dataclass(frozen=True, slots=True)
class _HealthCheckKind:
    """Kind of a health check. Fields that do not apply to the protocol are dropped, as Marathon does."""

    fields: Record

    def read(self, value: object, report: Report) -> HealthCheck | None:
        values = self.fields.read(value, report)
        if values is None:
            return None
        protocol = values.get("protocol", Protocol.HTTP)
        if (protocol is Protocol.COMMAND) != ("command" in values):
            report.wrong("must be set with protocol COMMAND, and only then", "command")
        dropped = {"path"} if not protocol.is_http else set()
        if protocol is Protocol.COMMAND:
            dropped |= {"port", "port_index"}
        if protocol not in (Protocol.HTTP, Protocol.HTTPS):
            dropped.add("ignore_http_1xx")
        return HealthCheck(**{name: item for name, item in values.items() if name not in dropped})

    def write(self, value: HealthCheck) -> dict[str, object]:
        written = self.fields.write(value)
        if value.protocol not in (Protocol.HTTP, Protocol.HTTPS):
            del written["ignoreHttp1xx"]
        return written


HEALTH_CHECK: Final = _HealthCheckKind(
    Record(
        (
            Field("protocol", "protocol", Choice(Protocol)),
            Field("path", "path", Text()),
            Field("port", "port", _PORT),
            Field("portIndex", "port_index", _PORT),
            Field("command", "command", Wrapped("value", Text(least=1))),
            Field("gracePeriodSeconds", "grace_period_s", _SECONDS),
            Field("intervalSeconds", "interval_s", _SECONDS),
            Field("timeoutSeconds", "timeout_s", _SECONDS),
            Field("maxConsecutiveFailures", "max_consecutive_failures", _SECONDS),
            Field("delaySeconds", "delay_s", _SECONDS),
            Field("ipProtocol", "ip_protocol", Choice(IpProtocol)),
            Field("ignoreHttp1xx", "ignore_http_1xx", Flag()),
        )
    )
)

READINESS_CHECK: Final = Record(
    (
        Field("name", "name", Text(least=1)),
        Field("protocol", "protocol", _SCHEME),
        Field("path", "path", _PATH),
        Field("portName", "port_name", Text(least=1, pattern=_NAME)),
        Field("intervalSeconds", "interval_s", _SECONDS),
        Field("timeoutSeconds", "timeout_s", Number(least=1, whole=True)),
        Field(
            "httpStatusCodesForReady",
            "ready_codes",
            ListOf(Number(least=100, most=999, whole=True), distinct=True, least=1),
        ),
        Field("preserveLastResponse", "preserve_last_response", Flag()),
    ),
    ReadinessCheck,
)

_PORT_CHECK: Final = (Field("portIndex", "port_index", _PORT), Field("port", "port", _PORT))
_COMMAND: Final = Record(
    (
        Field("shell", "shell", Text(least=1)),
        Field("argv", "argv", ListOf(Text(), least=1), omit_empty=True),
    ),
    Command,
)
CHECK: Final = Record(
    (
        Field(
            "http",
            "http",
            Record(
                (*_PORT_CHECK, Field("path", "path", _PATH), Field("scheme", "scheme", _SCHEME)),
                PortCheck,
            ),
        ),
        Field("tcp", "tcp", Record(_PORT_CHECK, PortCheck)),
        Field("exec", "exec", Wrapped("command", _COMMAND)),
        Field("intervalSeconds", "interval_s", _SECONDS),
        Field("timeoutSeconds", "timeout_s", _SECONDS),
        Field("delaySeconds", "delay_s", _SECONDS),
    ),
    Check,
)

NETWORK: Final = Record(
    (
        Field("name", "name", Text(least=1, most=63, pattern=_NETWORK_NAME)),
        Field("mode", "mode", Choice(NetworkMode)),
        Field("labels", "labels", _LABELS, omit_empty=True),
    ),
    Network,
)
PORT_DEFINITION: Final = Record(
    (
        Field("port", "port", _PORT),
        Field("labels", "labels", _LABELS),
        Field("name", "name", Text(least=1, pattern=_NAME)),
        Field("protocol", "protocol", _PROTOCOL),
    ),
    PortDefinition,
)
PORT_MAPPING: Final = Record(
    (
        Field("containerPort", "container_port", _PORT),
        Field("hostPort", "host_port", _PORT),
        Field("labels", "labels", _LABELS),
        Field("name", "name", Text(least=1, pattern=_NAME)),
        Field("protocol", "protocol", _PROTOCOL),
        Field("servicePort", "service_port", _PORT),
        Field(
            "networkNames",
            "network_names",
            ListOf(Text(least=1, most=63, pattern=_NETWORK_NAME)),
            omit_empty=True,
        ),
    ),
    PortMapping,
)
ARTIFACT: Final = Record(
    (
        Field("uri", "uri", _PATH, required=True),
        Field("extract", "extract", Flag()),
        Field("executable", "executable", Flag()),
        Field("cache", "cache", Flag()),
        Field("destPath", "dest_path", _PATH),
    ),
    Artifact,
)


def _volume(*fields: Field) -> tuple[Field, ...]:
    return (Field("containerPath", "container_path", Text(least=1), required=True), *fields)


def _not_offered(key: str, why: str) -> Record:
    return Record((Field(key, key, Refused(why), required=True),), Volume)


PERSISTENT: Final = Record(
    (
        Field("type", "type", Choice(DiskType)),
        Field("size", "size_mib", Number(least=1, whole=True), required=True),
        Field("maxSize", "max_size", Refused("is only for volumes of type mount; leave it out"), legacy=True),
        Field(
            "profileName",
            "profile",
            Refused("is only for volumes of storage profiles; leave it out"),
            legacy=True,
        ),
        Field("constraints", "constraints", ListOf(ListOf(Text()))),
    ),
    Persistent,
)
_RESIDENCY: Final = Record(
    (
        Field("relaunchEscalationTimeoutSeconds", "relaunch_escalation_timeout_s", _SECONDS),
        Field("taskLostBehavior", "task_lost_behavior", Choice(LostBehavior)),
    ),
    Residency,
)
VOLUME: Final = Keyed(
    {
        "persistent": Record(
            _volume(
                Field("mode", "mode", _MODE, required=True),
                Field("persistent", "persistent", PERSISTENT, required=True),
            ),
            Volume,
        ),
        "external": _not_offered(
            "external",
            "external volumes (DVDI, CSI) are not supported; mount them on the hosts, and use a hostPath",
        ),
        "secret": Record(_volume(Field("secret", "secret", Text(least=1), required=True)), Volume),
        "hostPath": Record(
            _volume(
                Field("hostPath", "host_path", Text(least=1), required=True),
                Field("mode", "mode", _MODE, required=True),
            ),
            Volume,
        ),
    },
    lambda volume: "secret" if volume.secret else "persistent" if volume.persistent else "hostPath",
)

DOCKER: Final = Record(
    (
        Field("credential", "credential", MapOf(Text()), legacy=True),
        Field("pullConfig", "pull_config", Wrapped("secret", Text(least=1), SecretRef, "secret")),
        Field("forcePullImage", "force_pull_image", Flag()),
        Field("image", "image", Text(least=1), required=True),
        Field("network", "network", Choice(DockerNetwork), legacy=True),
        Field(
            "parameters",
            "parameters",
            ListOf(
                Record(
                    (
                        Field("key", "key", Text(least=1), required=True),
                        Field("value", "value", Text(), required=True),
                    ),
                    DockerParameter,
                )
            ),
        ),
        Field("portMappings", "port_mappings", ListOf(PORT_MAPPING), legacy=True),
        Field("privileged", "privileged", Flag()),
    )
)
_LINUX_INFO: Final = Record(
    (
        Field(
            "seccomp",
            "seccomp",
            Record(
                (Field("profileName", "profile_name", Text()), Field("unconfined", "unconfined", Flag())),
                Seccomp,
            ),
        ),
        Field(
            "ipcInfo",
            "ipc",
            Record(
                (
                    Field("mode", "mode", Choice(IpcMode), required=True),
                    Field("shmSize", "shm_size_mib", Number(least=1, whole=True)),
                ),
                IpcInfo,
            ),
        ),
    ),
    LinuxInfo,
)
CONTAINER: Final = Record(
    (
        Field("type", "type", Choice(EngineType)),
        Field("docker", "docker", DOCKER),
        Field("linuxInfo", "linux_info", _LINUX_INFO),
        Field("volumes", "volumes", ListOf(VOLUME)),
        Field("portMappings", "port_mappings", ListOf(PORT_MAPPING)),
    )
)

_IP_PORT: Final = Record(
    (
        Field("number", "container_port", _PORT),
        Field("name", "name", Text(least=1, pattern=_NAME), required=True),
        Field("protocol", "protocol", _PROTOCOL),
        Field("labels", "labels", _LABELS),
    ),
    PortMapping,
)
_IP_ADDRESS: Final = Record(
    (
        Field("discovery", "discovery", Record((Field("ports", "ports", ListOf(_IP_PORT)),))),
        Field("groups", "groups", ListOf(Text())),
        Field("labels", "labels", _LABELS),
        Field("networkName", "network_name", Text(least=1, most=63, pattern=_NETWORK_NAME)),
    )
)
_UNREACHABLE: Final = Record(
    (
        Field("inactiveAfterSeconds", "inactive_after_s", _SECONDS),
        Field("expungeAfterSeconds", "expunge_after_s", _SECONDS),
    ),
    UnreachableStrategy,
)
_EXECUTOR_RESOURCES: Final = Record(
    (
        Field("cpus", "cpus", Number(least=0.1)),
        Field("mem", "mem_mib", Number(least=32)),
        Field("disk", "disk_mib", Number(least=10)),
    ),
    ExecutorResources,
)
_UPGRADE: Final = Record(
    (
        Field("maximumOverCapacity", "maximum_over_capacity", _SHARE),
        Field("minimumHealthCapacity", "minimum_health_capacity", _SHARE),
    ),
    UpgradeStrategy,
)


def _plain(key: str, name: str, kind: Kind) -> Field:
    return Field(key, name, kind)


def _omitted(key: str, name: str, kind: Kind) -> Field:
    return Field(key, name, kind, omit_empty=True)


def _legacy(key: str, name: str, kind: Kind) -> Field:
    return Field(key, name, kind, legacy=True)


APP: Final = Record(
    (
        Field("id", "id", Text(least=1), required=True),
        _omitted("acceptedResourceRoles", "accepted_resource_roles", ListOf(Text(), distinct=True, least=1)),
        _omitted("args", "args", ListOf(Text())),
        _plain("backoffFactor", "backoff_factor", Number(least=1)),
        _plain("backoffSeconds", "backoff_s", _SECONDS),
        _plain("cmd", "cmd", Text(least=1)),
        _omitted("constraints", "constraints", ListOf(_ConstraintKind(), distinct=True)),
        _plain("container", "container", CONTAINER),
        _plain("cpus", "cpus", Number(least=0.001)),
        _omitted("dependencies", "dependencies", ListOf(Text(least=1), distinct=True)),
        _plain("disk", "disk_mib", Number(least=0)),
        _omitted("env", "env", MapOf(TextOr(Text(), Wrapped("secret", Text(), SecretRef, "secret")))),
        _plain("executor", "executor", Text()),
        _plain("executorResources", "executor_resources", _EXECUTOR_RESOURCES),
        _omitted("fetch", "fetch", ListOf(ARTIFACT)),
        _omitted("healthChecks", "health_checks", ListOf(HEALTH_CHECK, distinct=True)),
        _plain("check", "check", CHECK),
        _plain("instances", "instances", Number(least=0, whole=True)),
        _plain("labels", "labels", _LABELS),
        _plain("maxLaunchDelaySeconds", "max_launch_delay_s", _SECONDS),
        _plain("mem", "mem_mib", Number(least=0)),
        _plain("gpus", "asked_milli", _Gpus(GPUS)),
        _plain("gpu", "gpu", GPU),
        _plain("networks", "networks", ListOf(NETWORK)),
        _plain("portDefinitions", "port_definitions", ListOf(PORT_DEFINITION)),
        _omitted("readinessChecks", "readiness_checks", ListOf(READINESS_CHECK)),
        _plain(
            "resourceLimits",
            "resource_limits",
            Record(
                (Field("cpus", "cpus", _Limit()), Field("mem", "mem_mib", _Limit())),
                ResourceLimits,
            ),
        ),
        _plain("requirePorts", "require_ports", Flag()),
        _omitted("secrets", "secrets", MapOf(Wrapped("source", Text(least=1)))),
        _plain("taskKillGracePeriodSeconds", "task_kill_grace_s", _SECONDS),
        _plain("upgradeStrategy", "upgrade_strategy", _UPGRADE),
        _plain("user", "user", Text()),
        _plain("killSelection", "kill_selection", Choice(KillSelection)),
        _plain(
            "unreachableStrategy",
            "unreachable_strategy",
            TextOr(Choice(Strategy), _UNREACHABLE),
        ),
        _plain("tty", "tty", Flag()),
        _plain("role", "role", Text(least=1)),
        _plain("residency", "residency", _RESIDENCY),
        _legacy("ipAddress", "ip_address", _IP_ADDRESS),
        _legacy("ports", "ports", ListOf(_PORT)),
        _legacy("uris", "uris", ListOf(_PATH)),
        _legacy("version", "version", Text(pattern=_DATE)),
    )
)
