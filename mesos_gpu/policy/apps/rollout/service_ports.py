"""Assignment of service ports: the ports on which load balancers listen for an app. Pure.

The rules are Marathon 1.11's (AssignDynamicServiceLogic): an app keeps the ports that it had; the others are the lowest
free ones. Numbers that clients chose are kept, even if two apps choose the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.apps.app import App, Group, same_but_scale


def service_ports_given(
    original: Group, target: Group, numbers: range, *, kept: Iterable[int] = ()
) -> Mapping[str, App]:
    """Return the apps of `target` that get service ports, by id: new or changed ones that have a port 0.

    Args:
        original: Tree before the change.
        target: Tree to reach.
        numbers: Range of assignable ports.
        kept: Ports that apps may take up again, as the deployment that removed them can still be undone.

    Raises:
        BadConfiguration: All assignable ports are in use.
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
    """Return whether an app gets service ports.

    An app of which only the number of instances changes keeps what it has; an app from before service ports existed has
    none, as assigning them would restart it.
    """
    return old is not new and 0 in new.service_ports and (old is None or not same_but_scale(old, new))


def _given(app: App, old: App | None, numbers: range, free: Iterator[int]) -> App:
    """Return the app with a service port in place of each 0: its previous ones first, then free ones."""
    previous = (
        [port for port in old.service_ports if port in numbers and port not in app.service_ports]
        if old
        else []
    )
    candidates = chain(previous, free)
    try:
        ports = [port or next(candidates) for port in app.service_ports]
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
    return replace(
        app, port_definitions=tuple(replace(definition, port=port) for definition, port in definitions)
    )
