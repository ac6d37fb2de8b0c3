"""Normalization of sent fields into an `App`: old fields of Marathon are converted, and defaults filled in; pure.

The order of steps is that of Marathon (AppNormalization), as each step relies on the ones before it.
"""

import re
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.model.apps.app import (
    App,
    Container,
    DockerImage,
    EngineType,
    GpuOptions,
    Network,
    NetworkMode,
    PortDefinition,
    PortMapping,
    Residency,
    UpgradeStrategy,
)
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.shares.units import WHOLE, cards_of
from mesos_gpu.wire.marathon.problems import Report
from mesos_gpu.wire.marathon.shapes import DockerNetwork, Strategy

MESOS_BRIDGE: Final = "mesos-bridge"  # Marathon's default name of the network that it treats as a bridge
#: Archives that the fetcher extracts.
_ARCHIVE: Final = re.compile(r".*\.(tgz|tar\.gz|tbz2|tar\.bz2|txz|tar\.xz|zip)")
_HOST: Final = (Network(NetworkMode.HOST),)
_DEFAULT_PORT: Final = "default"
_LEGACY: Final = ("ip_address", "ports", "uris", "version")
#: Default for apps with persistent volumes, whose updates end an old instance before the new one starts.
_UPGRADE_OF_RESIDENT: Final = UpgradeStrategy(minimum_health_capacity=0.5, maximum_over_capacity=0.0)
_MODES: Final = {
    DockerNetwork.HOST: NetworkMode.HOST,
    DockerNetwork.BRIDGE: NetworkMode.BRIDGE,
    DockerNetwork.USER: NetworkMode.CONTAINER,
}

Draft = dict[str, Any]  # sent fields by name in `App`; `container` and its `docker` are drafts too


def settled(sent: Draft, id: str, report: Report, *, role: str, default_network: str | None) -> App:
    """Return the app with the id `id`. Contradictory fields are reported, and one of them is used."""
    _look_at_legacy(sent, report)
    networks = _networks(sent, report)
    meant = {name: item for name, item in sent.items() if name not in _LEGACY}
    meant["id"] = id
    meant["gpus"], meant["gpu_milli"] = _gpus(meant.pop("asked_milli", None), sent.get("gpu"))
    meant["networks"] = tuple(_named(network, default_network) for network in networks) or _HOST
    meant["fetch"] = sent.get("fetch") or _fetched(sent.get("uris", ()))
    definitions = sent.get("port_definitions")
    if definitions is None and "ports" in sent:
        definitions = tuple(PortDefinition(port) for port in sent["ports"])
    on_host = all(network.mode is NetworkMode.HOST for network in meant["networks"])
    given = (PortDefinition(name=_DEFAULT_PORT),) if definitions is None else definitions
    meant["port_definitions"] = given if on_host else None
    meant["container"] = _container(
        sent, report, () if on_host else meant["networks"], wanted_ports=len(definitions or ())
    )
    meant["require_ports"] = on_host and sent.get("require_ports", False)
    meant["role"] = sent.get("role", role)
    if meant.get("unreachable_strategy") is Strategy.DISABLED:
        meant["unreachable_strategy"] = None
    if any(each.persistent is not None for each in sent.get("container", {}).get("volumes", ())):
        meant.setdefault("residency", Residency())
        meant.setdefault("unreachable_strategy", None)
    if meant.get("residency") is not None:
        meant.setdefault("upgrade_strategy", _UPGRADE_OF_RESIDENT)
    app = App(**meant)
    checks = tuple(_with_port(check) for check in app.health_checks) if app.ports else app.health_checks
    return replace(app, health_checks=checks)


def _gpus(milli: int | None, options: GpuOptions | None) -> tuple[int, int]:
    """Return the number of GPUs and the thousandths of each.

    Args:
        milli: Requested thousandths; None if `gpus` is absent, then a share of compute is of one GPU.
        options: GPU options of the app.
    """
    if milli is None:
        milli = WHOLE if options is not None and options.compute_pct is not None else 0
    return cards_of(milli)


def _look_at_legacy(sent: Draft, report: Report) -> None:
    """Report old fields that are mixed with the fields that replaced them."""
    address, ports = sent.get("ip_address"), sent.get("ports")
    docker = sent.get("container", {}).get("docker", {})
    uris = sorted(sent.get("uris", ()))
    if uris and sent.get("fetch") and uris != sorted(each.uri for each in sent["fetch"]):
        report.wrong("may not be set in conjunction with fetch", "uris")  # Marathon before 1.5 prints both
    if "network" in docker and sent.get("networks"):
        report.wrong("must not specify both container.docker.network and networks")
    if address is not None and sent.get("networks"):
        report.wrong("must not specify both networks and ipAddress")
    if address is not None and (ports or sent.get("port_definitions")):
        report.wrong("cannot specify both an IP address and port")
    definitions = sent.get("port_definitions")
    if ports is not None and definitions is not None and [each.port for each in definitions] != list(ports):
        report.wrong("cannot specify both ports and port definitions")


def _networks(sent: Draft, report: Report) -> tuple[Network, ...]:
    """Return the networks; empty if none were sent."""
    address = sent.get("ip_address")
    old = sent.get("container", {}).get("docker", {}).get("network")
    if sent.get("networks"):
        return tuple(sent["networks"])
    if old is DockerNetwork.NONE:
        with report.at("container", "docker"):
            report.wrong("a container without network is not supported", "network")
        return ()
    if old is not None:
        mode = _MODES[old]
    elif address is not None:
        bridge = address.get("network_name") == MESOS_BRIDGE
        mode = NetworkMode.BRIDGE if bridge else NetworkMode.CONTAINER
    else:
        return ()
    named = address or {}
    name = named.get("network_name") if mode is NetworkMode.CONTAINER else None
    labels = {} if mode is NetworkMode.HOST else named.get("labels", {})
    return (Network(mode, name, labels),)


def _named(network: Network, default: str | None) -> Network:
    if network.mode is NetworkMode.CONTAINER and network.name is None:
        return replace(network, name=default)
    return network


def _fetched(uris: tuple[str, ...]) -> tuple[Artifact, ...]:
    return tuple(Artifact(uri, extract=bool(_ARCHIVE.fullmatch(uri.split("?")[0]))) for uri in uris)


def _container(
    sent: Draft, report: Report, networks: tuple[Network, ...], *, wanted_ports: int
) -> Container | None:
    """Return the container; `networks` are its own networks, empty with host networking."""
    draft = sent.get("container")
    if draft is None and not networks:
        return None
    draft = dict({"type": EngineType.MESOS} if draft is None else draft)
    mappings = _mappings(sent, draft, report)
    docker = draft.pop("docker", None)
    with report.at("container"):
        image = _image(docker, draft.get("type", EngineType.DOCKER), report)
    draft["port_mappings"] = _filled(mappings, networks, wanted_ports) if networks else None
    return Container(docker=image, **draft)


def _image(docker: Draft | None, engine: EngineType, report: Report) -> DockerImage | None:
    """Return the Docker image from sent fields; report fields that do not fit the containerizer."""
    if docker is None:
        return None
    old = ["credential"]
    if engine is EngineType.MESOS:
        old += ["parameters", "port_mappings"]
        old += ["network"] if docker.get("network") is not DockerNetwork.HOST else []
    keys = {"port_mappings": "portMappings"}
    for name in old:
        if docker.get(name):
            report.wrong(
                f"must be empty with a container of type {engine.value}", "docker", keys.get(name, name)
            )
    legacy = ("credential", "network", "port_mappings")
    fields = {name: item for name, item in docker.items() if name not in legacy}
    return DockerImage(**fields) if "image" in fields else None


def _mappings(sent: Draft, draft: Draft, report: Report) -> tuple[PortMapping, ...] | None:
    """Return the port mappings from current or old fields; None if none were sent."""
    mappings = draft.get("port_mappings")
    old = draft.get("docker", {}).get("port_mappings")
    discovered = sent.get("ip_address", {}).get("discovery")
    if old:
        if mappings:
            report.wrong("cannot specify both portMappings and docker.portMappings", "container")
        mappings = mappings or old
    if discovered is not None and draft.get("type", EngineType.DOCKER) is EngineType.DOCKER:
        report.wrong("ipAddress/discovery is not allowed for Docker containers", "ipAddress")
    if discovered and discovered.get("ports"):
        if mappings:
            report.wrong(
                "must not be set together with ipAddress.discovery.ports", "container", "portMappings"
            )
        mappings = mappings or discovered["ports"]
    return mappings if mappings is None else tuple(mappings)


def _filled(
    mappings: tuple[PortMapping, ...] | None, networks: tuple[Network, ...], wanted: int
) -> tuple[PortMapping, ...]:
    """Extend port mappings to at least one, or to the number of port definitions; on a bridge all get a host port."""
    if mappings is None:
        mappings = (PortMapping(name=_DEFAULT_PORT),)
    mappings += (PortMapping(),) * (wanted - len(mappings))
    if any(network.mode is NetworkMode.BRIDGE for network in networks):
        return tuple(replace(mapping, host_port=mapping.host_port or 0) for mapping in mappings)
    return mappings


def _with_port(check: HealthCheck) -> HealthCheck:
    if check.protocol is Protocol.COMMAND or check.port is not None or check.port_index is not None:
        return check
    return replace(check, port_index=0)
