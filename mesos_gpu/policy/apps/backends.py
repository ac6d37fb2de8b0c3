"""What a load balancer shall serve: named services, and apps whose labels ask for it. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.split import Backend, Mode, Server, TrafficSplit
from mesos_gpu.model.words import whole_of
from mesos_gpu.policy.apps.service_labels import Wishes, limits_of, wishes_of
from mesos_gpu.policy.apps.split import server_weights

ANY_GROUP: Final = "*"
DEPLOYMENT_GROUP: Final = "HAPROXY_DEPLOYMENT_GROUP"
STARTED_AT: Final = "HAPROXY_DEPLOYMENT_STARTED_AT"
TARGET_INSTANCES: Final = "HAPROXY_DEPLOYMENT_TARGET_INSTANCES"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")  # in the name of a backend

#: A task that serves: task id, host and ports; None for each port at which the task is not proved to listen.
Address = tuple[str, str, tuple[int | None, ...]]
Serving = Callable[[str], Sequence[Address]]  # by app id, in a steady order


def named(split: TrafficSplit, apps: Mapping[str, App], serving: Serving) -> Backend:
    """A service of its own name; apps that do not exist count as without tasks."""
    known = [apps[id] for id in split.weights if id in apps]
    asked = {app.id: wishes_of(app, split.port_index) for app in known}
    every = {
        id: _at(serving(id) if id in asked and asked[id].enabled else (), split.port_index)
        for id in split.weights
    }
    servers, left_out = _fit(every)
    wishes = list(asked.values())
    mode = split.mode or next((wish.mode for wish in wishes if wish.mode), Mode.HTTP)
    off = [f"{id}: its HAPROXY_{split.port_index}_ENABLED is false, so its tasks do not serve"
           for id, wish in asked.items() if not wish.enabled]  # fmt: skip
    wished = Backend(
        split.name,
        mode=mode,
        port=split.port or next((wish.port for wish in wishes if wish.port), None),
        hosts=split.hosts or next((wish.hosts for wish in wishes if wish.hosts), ()),
        balance=next((wish.balance for wish in wishes if wish.balance), "roundrobin"),
        sticky=any(wish.sticky for wish in wishes),
        problems=(*(problem for wish in wishes for problem in wish.problems), *off, *left_out),
    )
    return _weighted(_limited(wished, wishes), split.weights, servers)


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
    sorting = any(each.hosts and not each.left_out for each in backends)
    taken: dict[str | int, str] = {http_port: "what sorts requests by their hosts"} if sorting else {}
    kept: dict[str, Backend] = {}
    for each in backends:
        if each.name in kept:
            continue
        if not each.left_out:
            wanted = {want: _place(each, want) for want in (each.port, *each.hosts) if want is not None}
            lost = [want for want, place in wanted.items() if place in taken]
            why = tuple(
                f"{wanted[want]} is that of {taken[wanted[want]]} already, and left out" for want in lost
            )
            hosts = tuple(host for host in each.hosts if host not in lost)
            port = None if each.port in lost else each.port
            if lost:
                each = replace(each, port=port, hosts=hosts, problems=(*each.problems, *why))
            taken |= {place: each.name for want, place in wanted.items() if want not in lost}
        kept[each.name] = each
    return list(kept.values())


def _place(backend: Backend, want: str | int) -> str | int:
    """Return what one service only may have: a port, or a host with the path below it."""
    return want if isinstance(want, int) else want + backend.path


def _limited(wished: Backend, wishes: Sequence[Wishes]) -> Backend:
    """Return a service with the limits of all its apps."""
    limits = limits_of(wishes, wished.mode)
    return replace(
        wished,
        path=limits.path,
        login=limits.login,
        https_only=limits.https_only,
        left_out=limits.unknown,
    )


def _of_app(app: App, groups: Sequence[str], serving: Serving) -> Iterator[Backend]:
    tasks = serving(app.id)
    for index in range(len(app.ports)):
        if _in_groups(app, index, groups):
            yield from _exposed([app], index, app.id, {app.id: _at(tasks, index)})


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
            yield from _exposed([*old, new], index, group, {id: _at(stay[id], index) for id in stay})


def _target(new: App) -> int:
    """How many tasks the group shall have in the end."""
    said = whole_of(new.labels.get(TARGET_INSTANCES, ""))
    return new.instances if said is None else said


def _exposed(
    apps: Sequence[App], index: int, id: str, servers_by_app: Mapping[str, Sequence[Server]]
) -> Iterator[Backend]:
    """Yield a service of apps as the labels of the first say; none, if no label and no service port says where the load
    balancer shall listen."""
    wishes = [wishes_of(app, index) for app in apps]
    wish = wishes[0]
    if wish.port is None and not wish.hosts:
        return
    enabled = {app.id for app, each in zip(apps, wishes, strict=True) if each.enabled}
    fit, left_out = _fit({id: each if id in enabled else () for id, each in servers_by_app.items()})
    wished = Backend(
        _UNFIT.sub("_", id.strip("/")) + f"_{wish.port or index}",
        next((each.mode for each in wishes if each.mode), Mode.TCP),
        wish.port,
        wish.hosts,
        wish.balance or "roundrobin",
        wish.sticky,
        problems=(*wish.problems, *left_out),
    )
    yield _weighted(_limited(wished, wishes), {id: len(servers) for id, servers in fit.items()}, fit)


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


def _in_groups(app: App, index: int, groups: Sequence[str]) -> bool:
    said = app.labels.get(f"HAPROXY_{index}_GROUP") or app.labels.get("HAPROXY_GROUP", "")
    return ANY_GROUP in groups or bool({each.strip() for each in said.split(",") if each} & set(groups))
