"""Service ports: where balancers listen for an app's ports. Each that a client left open gets one. Pure.

The rules are Marathon 1.11's (AssignDynamicServiceLogic): an app keeps those that it had; the others are the lowest
that are free. Numbers that clients chose are theirs, even if two apps choose the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.apps.app import App, Group, same_but_scale


def service_ports_given(
    original: Group, target: Group, numbers: range, *, kept: Iterable[int] = ()
) -> Mapping[str, App]:
    """The apps of `target` that get ports, by id: those that are new or changed and have a 0.

    Args:
        original: The tree before.
        target: The tree that is wanted.
        numbers: What may be given out.
        kept: Those that apps may take up again, because the deployment that removed them can still be undone.

    Raises:
        BadConfiguration: All of them are in use.
    """
    old = {app.id: app for app in original.all_apps()}
    asking = [app for app in target.all_apps() if _asks(old.get(app.id), app)]
    if not asking:
        return {}
    apps = chain(original.all_apps(), target.all_apps())
    used = {port for app in apps for port in app.service_ports}.union(kept)
    free = (port for port in numbers if port not in used)
    return {app.id: _given(app, old.get(app.id), numbers, free) for app in asking}


def _asks(old: App | None, new: App) -> bool:
    """An app that only has another number of instances keeps what it has, or none if it is of before there were
    any: to give it one would restart it."""
    return old is not new and 0 in new.service_ports and (old is None or not same_but_scale(old, new))


def _given(app: App, old: App | None, numbers: range, free: Iterator[int]) -> App:
    had = (
        [port for port in old.service_ports if port in numbers and port not in app.service_ports]
        if old
        else []
    )
    each = chain(had, free)
    try:
        ports = [port or next(each) for port in app.service_ports]
    except StopIteration:
        raise BadConfiguration(
            f"{app.id}: all service ports from {numbers[0]} to {numbers[-1]} are in use",
            remedy="name ports in the app's definition, or start the scheduler with a larger --service-ports",
        ) from None
    if app.container and app.container.port_mappings:
        mappings = zip(app.container.port_mappings, ports, strict=True)
        filled = tuple(replace(mapping, service_port=port) for mapping, port in mappings)
        return replace(app, container=replace(app.container, port_mappings=filled))
    definitions = zip(app.port_definitions or (), ports, strict=True)
    return replace(app, port_definitions=tuple(replace(each, port=port) for each, port in definitions))
