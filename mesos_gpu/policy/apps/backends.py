"""Services for a load balancer: named services, and apps that request one by their labels. Pure."""

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
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")  # not allowed in the name of a backend

#: Serving task: task id, host and ports; None for each port on which the task is not proved to listen.
Address = tuple[str, str, tuple[int | None, ...]]
Serving = Callable[[str], Sequence[Address]]  # tasks of an app by its id, in a stable order


def named(split: TrafficSplit, apps: Mapping[str, App], serving: Serving) -> Backend:
    """Return the load-balancer service of a named traffic split; apps that do not exist count as having no tasks.

    Args:
        split: Traffic split with the weights of its apps.
        apps: Existing apps by id.
        serving: Function that returns the serving tasks of an app.
    """
    existing = [apps[id] for id in split.weights if id in apps]
    wishes_by_app = {app.id: wishes_of(app, split.port_index) for app in existing}
    servers_by_app = {
        id: _at(serving(id) if id in wishes_by_app and wishes_by_app[id].enabled else (), split.port_index)
        for id in split.weights
    }
    servers, left_out = _fit(servers_by_app)
    wishes = list(wishes_by_app.values())
    mode = split.mode or next((wish.mode for wish in wishes if wish.mode), Mode.HTTP)
    off = [f"{id}: its HAPROXY_{split.port_index}_ENABLED is false, so its tasks do not serve"
           for id, wish in wishes_by_app.items() if not wish.enabled]  # fmt: skip
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
    """Return a load-balancer service for each labelled port of apps; apps of one deployment group share a service.

    Args:
        apps: Apps to look through.
        serving: Function that returns the serving tasks of an app.
        groups: Values of HAPROXY_GROUP to export; `ANY_GROUP` for all.
    """
    alone: list[App] = []
    together: dict[str, list[App]] = {}
    for app in apps:
        group = app.labels.get(DEPLOYMENT_GROUP, "").strip("/")
        if group:
            together.setdefault(group, []).append(app)
        else:
            alone.append(app)
    backends = [backend for app in alone for backend in _of_app(app, groups, serving)]
    for group, members in together.items():
        backends += _of_group(group, members, groups, serving)
    return backends


def without_clashes(backends: Sequence[Backend], http_port: int) -> list[Backend]:
    """Resolve clashes of services over a name, port or host: the first keeps it, and the others report a problem.

    A service whose name is taken is dropped; one whose port or host is taken loses only that.
    """
    sorting = any(backend.hosts and not backend.left_out for backend in backends)
    taken: dict[str | int, str] = {http_port: "the frontend that routes requests by host"} if sorting else {}
    by_name: dict[str, Backend] = {}
    for backend in backends:
        if backend.name in by_name:
            continue
        if not backend.left_out:
            places = {
                want: _place(backend, want) for want in (backend.port, *backend.hosts) if want is not None
            }
            lost = [want for want, place in places.items() if place in taken]
            why = tuple(
                f"{places[want]} is already used by {taken[places[want]]}, and left out" for want in lost
            )
            hosts = tuple(host for host in backend.hosts if host not in lost)
            port = None if backend.port in lost else backend.port
            if lost:
                backend = replace(backend, port=port, hosts=hosts, problems=(*backend.problems, *why))
            taken |= {place: backend.name for want, place in places.items() if want not in lost}
        by_name[backend.name] = backend
    return list(by_name.values())


def _place(backend: Backend, want: str | int) -> str | int:
    """Return the resource that only one service may have: a port, or a host with a path."""
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
    """Yield the services of the app's ports that are in one of the groups."""
    tasks = serving(app.id)
    for port_index in range(len(app.ports)):
        if _in_groups(app, port_index, groups):
            yield from _exposed([app], port_index, app.id, {app.id: _at(tasks, port_index)})


def _of_group(
    group: str, members: Sequence[App], groups: Sequence[str], serving: Serving
) -> Iterator[Backend]:
    """Yield the services of a deployment group, whose last started app is the new one.

    For each serving task of the new app one old task is left out, as long as the group keeps the number of tasks that
    it shall have in the end.
    """
    *old, new = sorted(members, key=lambda app: (app.labels.get(STARTED_AT, ""), app.id))
    tasks = {app.id: [task for task in serving(app.id) if any(task[2]) or not task[2]] for app in members}
    target = _target(new)
    drained = min(len(tasks[new.id]), max(0, len(tasks[new.id]) + sum(app.instances for app in old) - target))
    leaving = {task[0] for task in sorted(task for app in old for task in tasks[app.id])[:drained]}
    for index in range(len(new.ports)):
        if _in_groups(new, index, groups):
            stay = {id: [task for task in tasks[id] if task[0] not in leaving] for id in tasks}
            yield from _exposed([*old, new], index, group, {id: _at(stay[id], index) for id in stay})


def _target(new: App) -> int:
    """Return the number of tasks that the group shall have in the end."""
    target = whole_of(new.labels.get(TARGET_INSTANCES, ""))
    return new.instances if target is None else target


def _exposed(
    apps: Sequence[App], index: int, id: str, servers_by_app: Mapping[str, Sequence[Server]]
) -> Iterator[Backend]:
    """Yield a service of apps by the labels of the first app; none if it has neither a host label nor a port."""
    wishes = [wishes_of(app, index) for app in apps]
    wish = wishes[0]
    if wish.port is None and not wish.hosts:
        return
    enabled = {app.id for app, other in zip(apps, wishes, strict=True) if other.enabled}
    fit, left_out = _fit({id: other if id in enabled else () for id, other in servers_by_app.items()})
    wished = Backend(
        _UNFIT.sub("_", id.strip("/")) + f"_{wish.port or index}",
        next((other.mode for other in wishes if other.mode), Mode.TCP),
        wish.port,
        wish.hosts,
        wish.balance or "roundrobin",
        wish.sticky,
        problems=(*wish.problems, *left_out),
    )
    yield _weighted(_limited(wished, wishes), {id: len(servers) for id, servers in fit.items()}, fit)


def _at(tasks: Iterable[Address], index: int) -> list[Server]:
    """Return the servers of tasks that have a port of that index."""
    return [Server(id, "", host, ports[index], 1) for id, host, ports in tasks if index < len(ports)]


def _fit(
    servers_by_app: Mapping[str, Sequence[Server]],
) -> tuple[Mapping[str, Sequence[Server]], tuple[str, ...]]:
    """Return the servers that exports may name, and the reasons why the others are left out."""
    fit = {id: [server for server in servers if not server.problem] for id, servers in servers_by_app.items()}
    all_servers = (server for servers in servers_by_app.values() for server in servers)
    return fit, tuple(server.problem for server in all_servers if server.problem)


def _weighted(
    wished: Backend, weights: Mapping[str, int], servers_by_app: Mapping[str, Sequence[Server]]
) -> Backend:
    """Return the service with its servers, weighted so that apps get requests in proportion to `weights`."""
    given = server_weights(weights, {id: len(servers) for id, servers in servers_by_app.items()})
    servers = tuple(
        replace(server, app_id=id, weight=weight)
        for id, own in servers_by_app.items()
        for server, weight in zip(own, given[id], strict=True)
        if weight > 0
    )
    serve = {server.app_id for server in servers}
    return replace(
        wished, servers=servers, shares={id: weight for id, weight in weights.items() if id in serve}
    )


def _in_groups(app: App, index: int, groups: Sequence[str]) -> bool:
    """Return whether a port of an app is in one of the groups, by the label of the port or of the app."""
    label = app.labels.get(f"HAPROXY_{index}_GROUP") or app.labels.get("HAPROXY_GROUP", "")
    return ANY_GROUP in groups or bool({name.strip() for name in label.split(",") if name} & set(groups))
