"""Rules of Marathon 1.11 for apps beyond types and ranges (its AppValidation), and for GPU options; pure functions."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.apps.app import (
    GPU_SHARE,
    App,
    Container,
    DiskType,
    EngineType,
    Network,
    NetworkMode,
    Persistent,
    ReadinessCheck,
    SecretRef,
    Volume,
    VolumeMode,
)
from mesos_gpu.model.jobs.healthcheck import HealthCheck, IpProtocol
from mesos_gpu.wire.checking import excess_of
from mesos_gpu.wire.constraints import MAX_CONSTRAINTS
from mesos_gpu.wire.marathon.options import PREFIX, asked_of, report_labels
from mesos_gpu.wire.marathon.paths import ROOT, problem_of
from mesos_gpu.wire.marathon.problems import Report
from mesos_gpu.wire.shares import OF_APPS, OF_SHARES, share_problems

SINGLE_INSTANCE: Final = "MARATHON_SINGLE_INSTANCE_APP"
ANY_ROLE: Final = "*"
_MIGRATION: Final = "DCOS_MIGRATION_API_VERSION"
_MIGRATION_NEEDS: Final = ("DCOS_PACKAGE_FRAMEWORK_NAME", "DCOS_MIGRATION_API_PATH")
_ROLE_UNFIT: Final = re.compile(r"[\t\n\v\f\r /\x7f]")
# RFC 3986, with non-ASCII letters as java.net.URI permits them.
_URI: Final = re.compile(r"([A-Za-z0-9._~:/?@!$&'()*+,;=\[\]-]|[^\x00-\xa0\s]|%[0-9A-Fa-f]{2})*")
_URI_WITH_FRAGMENT: Final = re.compile(rf"{_URI.pattern}(#{_URI.pattern})?")
_BARE: Final = ReadinessCheck()  # a check with the default values of requests
_NO_SECRETS: Final = (
    "secrets are not enabled; leave them out, or have the operator set --secrets-dir or --vault-url"
)


def _nothing(_app: App) -> Iterable[tuple[str, str]]:
    return ()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Permissions and defaults for app definitions.

    Attributes:
        secrets: Whether the scheduler has a store of secrets.
        role: Role of apps that name none.
        default_network: Name of networks of mode container without a name.
        also: Function that returns further problems of an app with their fields, such as "container.volumes.0", to be
            reported in the same answer.
    """

    secrets: bool = False
    role: str = ANY_ROLE
    default_network: str | None = None
    also: Callable[[App], Iterable[tuple[str, str]]] = _nothing


def check(app: App, allowed: Allowed, report: Report) -> None:
    """Report all problems of an app."""
    report_labels(app, report)
    for rule in _RULES:
        rule(app, report)
    _secrets(app, allowed, report)
    # Problems of disabled secrets are reported by `_secrets`.
    report_others(
        report, (problem for problem in allowed.also(app) if problem[0] != "secrets" or allowed.secrets)
    )


def report_others(report: Report, problems: Iterable[tuple[str, str]]) -> None:
    """Report problems in the form that `Allowed.also` returns."""
    for field, why in problems:
        report.wrong(why, *_steps(field))


def _steps(field: str) -> list[str | int]:
    """Return the steps of a field in `Allowed.also`: numbers are indexes; names in env and labels may have dots."""
    top, _, rest = field.partition(".")
    if top in ("env", "labels") and rest:
        return [top, rest]
    return [int(step) if step.isdecimal() else step for step in field.split(".")]


def _id(app: App, report: Report) -> None:
    if app.id == ROOT:
        report.wrong("Path must contain at least one path element", "id")
    elif why := problem_of(app.id):
        report.wrong(why, "id")
    for i, needed in enumerate(app.dependencies):
        if why := problem_of(needed):
            report.wrong(why, "dependencies", i)


def _constraints(app: App, report: Report) -> None:
    if len(app.constraints) > MAX_CONSTRAINTS:
        report.wrong(
            f"must have at most {MAX_CONSTRAINTS} constraints, got {len(app.constraints)}", "constraints"
        )


def _command(app: App, report: Report) -> None:
    if app.cmd is not None and len(app.cmd) == 1:
        report.wrong("must not be an empty string")  # Marathon's message for a cmd of one character
    container = app.container
    runnable = container is not None and (container.docker is not None or container.type is EngineType.MESOS)
    if (bool(app.cmd) and bool(app.args)) or not (app.cmd or app.args or runnable):
        report.wrong("AppDefinition must either contain one of 'cmd' or 'args', and/or a 'container'.")
    if app.executor not in ("", "//cmd"):
        report.wrong("custom executors are not supported; leave it out", "executor")
    for i, artifact in enumerate(app.fetch):
        if not _URI_WITH_FRAGMENT.fullmatch(artifact.uri):
            report.wrong("URI has invalid syntax.", "fetch", i)


def _repeats(items: Iterable[object]) -> bool:
    return any(count > 1 for count in Counter(items).values())


def _ports(app: App, report: Report) -> None:
    definitions = app.port_definitions or ()
    if _repeats(each.name for each in definitions if each.name):
        report.wrong("Port names must be unique.", "portDefinitions")
    if _repeats(each.port for each in definitions if each.port):
        report.wrong("Ports must be unique.", "portDefinitions")


def _mappings(app: App, report: Report) -> None:
    """Report problems of port mappings."""
    mappings = (app.container.port_mappings if app.container else None) or ()
    several = sum(network.mode is NetworkMode.CONTAINER for network in app.networks) > 1
    names = [network.name for network in app.networks]
    with report.at("container", "portMappings"):
        if _repeats(each.name for each in mappings if each.name):
            report.wrong("Port names must be unique.")
        for i, each in enumerate(mappings):
            if several and each.host_port is not None and len(each.network_names) != 1:
                report.wrong(
                    "with several container networks a port with hostPort must have exactly one of networkNames",
                    i,
                )
            for k, name in enumerate(each.network_names):
                if name not in names:
                    report.wrong("must be the name of one of the app's networks", i, "networkNames", k)


def _networks(app: App, report: Report) -> None:
    with report.at("networks"):
        for why in _problems_of_networks(app.networks):
            report.wrong(why)
    on_docker = app.container is not None and app.container.type is EngineType.DOCKER
    if on_docker and sum(network.mode is NetworkMode.CONTAINER for network in app.networks) > 1:
        report.wrong("a container of type DOCKER must have at most one container network")


def _problems_of_networks(networks: tuple[Network, ...]) -> Iterable[str]:
    modes = Counter(network.mode for network in networks)
    if any(each.mode is NetworkMode.HOST and (each.name or each.labels) for each in networks):
        yield "Host networks may not have names or labels"
    if any(each.mode is NetworkMode.BRIDGE and each.name for each in networks):
        yield "Bridge networks may not have names"
    if any(each.mode is NetworkMode.CONTAINER and each.name is None for each in networks):
        yield "a network of mode container must have a name, as there is no default network"
    if _repeats(each.name for each in networks if each.mode is NetworkMode.CONTAINER):
        yield "Duplicate networks are not allowed"
    if len(networks) > 1 and modes[NetworkMode.CONTAINER] != len(networks):
        yield "must be one host network, one bridge network, or container networks"


def _container(app: App, report: Report) -> None:
    container = app.container
    if container is None:
        return
    with report.at("container"):
        if container.type is EngineType.DOCKER and container.docker is None:
            report.wrong("not defined", "docker")
        if container.type is EngineType.DOCKER and container.linux_info is not None:
            report.wrong("is only for containers of type MESOS; leave it out", "linuxInfo")
        seccomp = container.linux_info.seccomp if container.linux_info else None
        if seccomp is not None and seccomp.unconfined == (seccomp.profile_name is not None):
            report.wrong("must have either profileName or unconfined", "linuxInfo", "seccomp")


def _residency(app: App, report: Report) -> None:
    """Report conflicts of persistent volumes with other fields."""
    if (app.residency is not None) is not app.is_resident:
        report.wrong(
            "residency and persistent volumes must be set together; set both or neither", "residency"
        )
    if not app.is_resident or app.container is None:
        return
    for i, volume in enumerate(app.container.volumes):
        if volume.persistent is not None:
            with report.at("container", "volumes", i):
                _persistent(volume, volume.persistent, report)
    if app.upgrade_strategy.maximum_over_capacity:
        why = (
            "must be 0 with persistent volumes, as an instance needs the volumes of the one that it replaces"
        )
        report.wrong(why, "upgradeStrategy", "maximumOverCapacity")
    if app.unreachable_strategy is not None:
        why = 'must be "disabled" with persistent volumes, as an instance waits for the node that has them'
        report.wrong(why, "unreachableStrategy")


def _persistent(volume: Volume, persistent: Persistent, report: Report) -> None:
    path = volume.container_path
    if "/" in path or path in (".", ".."):
        report.wrong(f"must be a single name in the sandbox, as data; got {path!r}", "containerPath")
    if volume.mode is not VolumeMode.RW:
        report.wrong("must be RW for a persistent volume", "mode")
    if persistent.type is not DiskType.ROOT:
        why = f"must be root, the only supported type, got {persistent.type.value}"
        report.wrong(why, "persistent", "type")
    if persistent.constraints:
        report.wrong("is only for disks of type path and mount; leave it out", "persistent", "constraints")


def _health_checks(app: App, report: Report) -> None:
    count = len(app.ports)
    for i, health_check in enumerate(app.health_checks):
        with report.at("healthChecks", i):
            if not _finds_its_port(health_check, count):
                report.wrong(
                    "Health check port indices must address an element of the ports array or container port mappings."
                )
            if health_check.ip_protocol is IpProtocol.IPV6 and not _may_ask_ipv6(health_check, app.container):
                report.wrong(
                    "IPv6 is only for containers of type DOCKER and protocols MESOS_HTTP, MESOS_HTTPS and MESOS_TCP"
                )
    if sum(each.protocol.by_executor and each.command is None for each in app.health_checks) > 1:
        report.wrong("AppDefinition can contain at most one Mesos health check")


def _finds_its_port(each: HealthCheck, count: int) -> bool:
    if each.protocol.by_executor:
        return True
    if each.port_index is not None:
        return each.port_index < count
    return each.port is not None or count == 1


def _may_ask_ipv6(each: HealthCheck, container: Container | None) -> bool:
    on_docker = container is not None and container.type is EngineType.DOCKER
    return on_docker and each.protocol.by_executor and each.command is None


def _check(app: App, report: Report) -> None:
    """Report problems of the field `check`."""
    check = app.check
    if check is None:
        return
    if app.container is not None and app.container.type is EngineType.DOCKER:
        report.wrong("AppDefinition must not use 'checks' if using docker")
    with report.at("check"):
        if sum(each is not None for each in (check.http, check.tcp, check.exec)) != 1:
            report.wrong("must have exactly one of http, tcp and exec")
        if check.exec is not None and (check.exec.shell is None) != bool(check.exec.argv):
            report.wrong("must have exactly one of shell and argv", "exec", "command")
        where = check.http or check.tcp
        count = len(app.ports)
        if where is not None and where.port is None and (where.port_index or 0) >= count:
            report.wrong("must have a port index of one of the app's ports")


def _readiness(app: App, report: Report) -> None:
    """Report problems of readiness checks."""
    if len(app.readiness_checks) > 1:
        report.wrong("must have at most one check", "readinessChecks")
    names = [port.name for port in app.ports]
    for i, readiness_check in enumerate(app.readiness_checks):
        with report.at("readinessChecks", i):
            if readiness_check.port_name not in names:
                of = (
                    ", the default; set it to the name of a port of the app"
                    if readiness_check.port_name == _BARE.port_name
                    else ""
                )
                report.wrong(
                    f"No port definition reference for portName {readiness_check.port_name}{of}", "portName"
                )
            if readiness_check.timeout_s >= readiness_check.interval_s:
                _timeout_too_long(readiness_check, report)


def _timeout_too_long(check: ReadinessCheck, report: Report) -> None:
    """Report a timeout that is not below the interval; at `intervalSeconds` if the timeout may be the default."""
    if check.timeout_s == _BARE.timeout_s:
        least = f"got {check.interval_s}, expected more than timeoutSeconds, which is {_BARE.timeout_s} by default"
        report.wrong(least, "intervalSeconds")
    else:
        report.wrong(f"got {check.timeout_s}, expected less than {check.interval_s}", "timeoutSeconds")


def _strategies(app: App, report: Report) -> None:
    """Report problems of the unreachable strategy and of single-instance apps."""
    unreachable = app.unreachable_strategy
    if unreachable is not None and unreachable.inactive_after_s > unreachable.expunge_after_s:
        report.wrong(
            f"inactiveAfterSeconds ({unreachable.inactive_after_s}) must be less or equal to "
            f"expungeAfterSeconds, which is {unreachable.expunge_after_s}",
            "unreachableStrategy",
            "inactiveAfterSeconds",
        )
    if app.labels.get(SINGLE_INSTANCE) != "true":
        return
    if app.instances > 1:
        report.wrong("Single instance app may only have one instance")
    upgrade = app.upgrade_strategy
    for key, share in (
        ("minimumHealthCapacity", upgrade.minimum_health_capacity),
        ("maximumOverCapacity", upgrade.maximum_over_capacity),
    ):
        if share != 0:
            report.wrong(f"must be 0 with label {SINGLE_INSTANCE}", "upgradeStrategy", key)


def _limits(app: App, report: Report) -> None:
    limits = app.resource_limits
    if limits is None:
        return
    for key, limit, least in (("cpus", limits.cpus, app.cpus), ("mem", limits.mem_mib, app.mem_mib)):
        if limit is not None and not math.isinf(limit) and limit < least:
            report.wrong(f"must be at least {least}, the amount that the app requests", "resourceLimits", key)


def _migration(app: App, report: Report) -> None:
    version = app.labels.get(_MIGRATION)
    if version and (version != "v1" or not all(app.labels.get(key) for key in _MIGRATION_NEEDS)):
        report.wrong(
            f"label {_MIGRATION} must be v1, and requires the labels {' and '.join(_MIGRATION_NEEDS)}"
        )


def _environment(app: App, report: Report) -> None:
    for key, strings in (("env", app.env), ("labels", app.labels)):
        if too_much := excess_of(strings):
            report.wrong(too_much, key)
    for name in app.env:
        if not name or "=" in name:
            report.wrong("must have a non-empty name without '='", "env", name)


def _roles(app: App, report: Report) -> None:
    roles = [(("acceptedResourceRoles", i), role) for i, role in enumerate(app.accepted_resource_roles)]
    for steps, role in [(("role",), app.role or ANY_ROLE), *roles]:
        if role in ("", ".", "..") or role.startswith("-") or _ROLE_UNFIT.search(role):
            report.wrong("must be the name of a Mesos role", *steps)


def _secrets(app: App, allowed: Allowed, report: Report) -> None:
    for steps, name in _references(app):
        if not allowed.secrets:
            report.wrong(_NO_SECRETS, *steps)
        elif name not in app.secrets:
            report.wrong("references an undefined secret", *steps)
    if app.secrets and not allowed.secrets:
        report.wrong(_NO_SECRETS, "secrets")


def _references(app: App) -> Iterable[tuple[tuple[str | int, ...], str]]:
    for name, value in app.env.items():
        if isinstance(value, SecretRef):
            yield ("env", name, "secret"), value.secret
    if app.container is None:
        return
    for i, volume in enumerate(app.container.volumes):
        if volume.secret is not None:
            yield ("container", "volumes", i, "secret"), volume.secret
    if app.container.docker and app.container.docker.pull_config:
        yield ("container", "docker", "pullConfig"), app.container.docker.pull_config.secret


def _gpu(app: App, report: Report) -> None:
    if app.gpu is None or app.gpus or report.doubts("gpus"):
        return
    for key in ("models", "memory_mib", "compute_capability", "min_driver"):
        if getattr(app.gpu, key):
            report.wrong("needs gpus of at least 1", "gpu", key)


def _share(app: App, report: Report) -> None:
    spec = asked_of(app)
    doubtful = {name for name in OF_APPS if _doubts(report, name)}
    if spec.gpu_compute_pct is not None and not spec.gpus and "gpus" not in doubtful:
        report.wrong("needs gpus of at least 1", "gpu", "compute_pct")
    for name, why in share_problems(spec, OF_APPS, doubtful=doubtful):
        report.wrong(why, *OF_APPS[name].split("."))


def _doubts(report: Report, name: str) -> bool:
    """Return whether the field of an app for a field of `JobSpec`, or the label for it, has a reported problem."""
    of_app = OF_SHARES[name].of_app
    label = PREFIX + of_app.upper() if of_app else GPU_SHARE
    return report.doubts(*OF_APPS[name].split(".")) or report.doubts("labels", label)


_RULES: Final[tuple[Callable[[App, Report], None], ...]] = (
    _id,
    _command,
    _ports,
    _mappings,
    _networks,
    _container,
    _residency,
    _health_checks,
    _check,
    _readiness,
    _strategies,
    _limits,
    _migration,
    _environment,
    _gpu,
    _share,
    _constraints,
    _roles,
)
