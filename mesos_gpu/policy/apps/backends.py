"""What a load balancer shall serve: named services, and apps whose labels ask for it as marathon-lb reads them. Pure.

Facts of the labels: marathon-lb's Longhelp.md and marathon_lb.py (mesosphere/marathon-lb, 1.x). Values of labels end
up in the configuration of a proxy, so all that is not of a known form is left out, and named.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.split import HOST, Backend, Mode, Server, TrafficSplit
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.words import whole_of
from mesos_gpu.policy.apps.split import server_weights

ANY_GROUP: Final = "*"
DEPLOYMENT_GROUP: Final = "HAPROXY_DEPLOYMENT_GROUP"
STARTED_AT: Final = "HAPROXY_DEPLOYMENT_STARTED_AT"
TARGET_INSTANCES: Final = "HAPROXY_DEPLOYMENT_TARGET_INSTANCES"
_BALANCES: Final = ("roundrobin", "static-rr", "leastconn", "first", "source", "random")
_LABEL: Final = re.compile(r"HAPROXY_(?:\d+_)?([A-Z_]+)")
_HONOURED: Final = ("GROUP", "PORT", "VHOST", "MODE", "BALANCE", "STICKY")
_SAID_ELSEWHERE: Final = re.compile(r"HAPROXY_(DEPLOYMENT_[A-Z_]+|APP_ID)")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")  # in the name of a backend

#: A task that serves: task id, host and ports; None for each port at which the task is not proved to listen.
Address = tuple[str, str, tuple[int | None, ...]]
Serving = Callable[[str], Sequence[Address]]  # by app id, in a steady order


def named(split: TrafficSplit, apps: Mapping[str, App], serving: Serving) -> Backend:
    """A service of its own name; apps that do not exist count as without tasks."""
    known = [apps[id] for id in split.weights if id in apps]
    every = {id: _at(serving(id) if id in apps else (), split.port_index) for id in split.weights}
    servers, left_out = _fit(every)
    wishes = [_wishes(app, split.port_index) for app in known]
    wished = Backend(
        split.name,
        mode=split.mode or next((wish.mode for wish in wishes if wish.mode), Mode.HTTP),
        port=split.port or next((wish.port for wish in wishes if wish.port), None),
        hosts=split.hosts or next((wish.hosts for wish in wishes if wish.hosts), ()),
        balance=next((wish.balance for wish in wishes if wish.balance), "roundrobin"),
        sticky=any(wish.sticky for wish in wishes),
        problems=(*(problem for wish in wishes for problem in wish.problems), *left_out),
    )
    return _weighted(wished, split.weights, servers)


def labelled(apps: Iterable[App], serving: Serving, groups: Sequence[str]) -> list[Backend]:
    """A service for each port of each app that is in one of the groups; apps of one deployment group share theirs."""
    alone: list[App] = []
    together: dict[str, list[App]] = {}
    for app in apps:
        group = app.labels.get(DEPLOYMENT_GROUP, "").strip("/")
        if group:
            together.setdefault(group, []).append(app)
        else:
            alone.append(app)
    backends = [each for app in alone for each in _of_app(app, groups, serving)]
    for group, members in together.items():
        backends += _of_group(group, members, groups, serving)
    return backends


def without_clashes(backends: Sequence[Backend], http_port: int) -> list[Backend]:
    """Drop clashes: of several that want one name, port or host the first has it; the others go without, and say so."""
    sorting = any(each.hosts for each in backends)
    taken: dict[str | int, str] = {http_port: "what sorts requests by their hosts"} if sorting else {}
    kept: dict[str, Backend] = {}
    for each in backends:
        if each.name in kept:
            continue
        lost = [want for want in (each.port, *each.hosts) if want is not None and want in taken]
        if lost:
            why = tuple(f"{want} is that of {taken[want]} already, and left out" for want in lost)
            hosts = tuple(host for host in each.hosts if host not in lost)
            port = None if each.port in lost else each.port
            each = replace(each, port=port, hosts=hosts, problems=(*each.problems, *why))
        taken |= {want: each.name for want in (each.port, *each.hosts) if want is not None}
        kept[each.name] = each
    return list(kept.values())


def _of_app(app: App, groups: Sequence[str], serving: Serving) -> Iterator[Backend]:
    tasks = serving(app.id)
    for index in range(len(app.ports)):
        if _in_groups(app, index, groups):
            yield from _exposed(app, index, app.id, {app.id: _at(tasks, index)})


def _of_group(
    group: str, members: Sequence[App], groups: Sequence[str], serving: Serving
) -> Iterator[Backend]:
    """The one that was started last is the new one: for each of its tasks that serve one of the others is let go,
    as long as there are as many as the new one shall have in the end."""
    *old, new = sorted(members, key=lambda app: (app.labels.get(STARTED_AT, ""), app.id))
    tasks = {app.id: [each for each in serving(app.id) if any(each[2]) or not each[2]] for app in members}
    target = _target(new)
    drained = min(len(tasks[new.id]), max(0, len(tasks[new.id]) + sum(app.instances for app in old) - target))
    leaving = {each[0] for each in sorted(each for app in old for each in tasks[app.id])[:drained]}
    for index in range(len(new.ports)):
        if _in_groups(new, index, groups):
            stay = {id: [each for each in tasks[id] if each[0] not in leaving] for id in tasks}
            yield from _exposed((*old, new)[0], index, group, {id: _at(stay[id], index) for id in stay})


def _target(new: App) -> int:
    """How many tasks the group shall have in the end."""
    said = whole_of(new.labels.get(TARGET_INSTANCES, ""))
    return new.instances if said is None else said


def _exposed(
    app: App, index: int, id: str, servers_by_app: Mapping[str, Sequence[Server]]
) -> Iterator[Backend]:
    """Nothing, if no label and no service port says where the load balancer shall listen."""
    wish = _wishes(app, index)
    if wish.port is None and not wish.hosts:
        return
    fit, left_out = _fit(servers_by_app)
    wished = Backend(
        _UNFIT.sub("_", id.strip("/")) + f"_{wish.port or index}",
        wish.mode or Mode.TCP,
        wish.port,
        wish.hosts,
        wish.balance or "roundrobin",
        wish.sticky,
        problems=(*wish.problems, *left_out),
    )
    yield _weighted(wished, {id: len(servers) for id, servers in fit.items()}, fit)


def _at(tasks: Iterable[Address], index: int) -> list[Server]:
    """Servers that have a port of that index."""
    return [Server(id, "", host, ports[index], 1) for id, host, ports in tasks if index < len(ports)]


def _fit(
    servers_by_app: Mapping[str, Sequence[Server]],
) -> tuple[Mapping[str, Sequence[Server]], tuple[str, ...]]:
    """Return the servers that exports may name, and the reasons why the others are left out."""
    fit = {id: [each for each in servers if not each.problem] for id, servers in servers_by_app.items()}
    every = (each for servers in servers_by_app.values() for each in servers)
    return fit, tuple(each.problem for each in every if each.problem)


def _weighted(
    wished: Backend, weights: Mapping[str, int], servers_by_app: Mapping[str, Sequence[Server]]
) -> Backend:
    given = server_weights(weights, {id: len(servers) for id, servers in servers_by_app.items()})
    servers = tuple(
        replace(server, app_id=id, weight=weight)
        for id, each in servers_by_app.items()
        for server, weight in zip(each, given[id], strict=True)
        if weight > 0
    )
    serve = {server.app_id for server in servers}
    return replace(
        wished, servers=servers, shares={id: weight for id, weight in weights.items() if id in serve}
    )


# --- labels


@dataclass(frozen=True, slots=True)
class _Wishes:
    """What an app's labels say of one of its ports."""

    port: int | None
    hosts: tuple[str, ...]
    mode: Mode | None
    balance: str
    sticky: bool
    problems: tuple[str, ...]


def _wishes(app: App, index: int) -> _Wishes:
    bad: list[str] = []

    def said(word: str, good: Callable[[str], bool]) -> str:
        label = f"HAPROXY_{index}_{word}"
        value = app.labels.get(label, "").strip()
        if value and not good(value):
            bad.append(f"{app.id}: {label} {value!r} is of no known form, and left out")
            return ""
        return value

    port = said("PORT", lambda text: whole_of(text) in range(1, 65536))
    hosts = said("VHOST", lambda text: all(HOST.fullmatch(host.strip()) for host in text.split(",")))
    mode = said("MODE", lambda text: text.lower() in ("http", "tcp")).lower()
    balance = said("BALANCE", _BALANCES.__contains__)
    sticky = said("STICKY", lambda text: text.lower() in ("true", "false")).lower() == "true"
    bad += (f"{app.id}: {label} is of no effect here" for label in app.labels if _is_unknown(label))
    http = bool(hosts) or any(_checks(check, index) for check in app.health_checks)
    return _Wishes(
        port=int(port) if port else _service_port(app, index),
        hosts=tuple(host.strip().lower() for host in hosts.split(",") if host),
        mode=Mode(mode) if mode else Mode.HTTP if http else None,
        balance=balance,
        sticky=sticky,
        problems=tuple(bad),
    )


def _is_unknown(label: str) -> bool:
    match = _LABEL.fullmatch(label)
    return match is not None and match[1] not in _HONOURED and not _SAID_ELSEWHERE.fullmatch(label)


def _checks(check: HealthCheck, index: int) -> bool:
    return check.protocol.is_http and check.port_index == index


def _service_port(app: App, index: int) -> int | None:
    return next(iter(app.service_ports[index : index + 1]), None) or None


def _in_groups(app: App, index: int, groups: Sequence[str]) -> bool:
    said = app.labels.get(f"HAPROXY_{index}_GROUP") or app.labels.get("HAPROXY_GROUP", "")
    return ANY_GROUP in groups or bool({each.strip() for each in said.split(",") if each} & set(groups))
