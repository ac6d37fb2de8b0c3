"""Service ports that apps get: those that they had, then the lowest that are free."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.apps.app import App, Container, Group, PortDefinition, PortMapping
from mesos_gpu.policy.apps.rollout.service_ports import service_ports_given

NUMBERS = range(10000, 10004)


def app(name: str, *ports: int, cmd: str = "x", instances: int = 1) -> App:
    definitions = tuple(PortDefinition(port, f"p{n}") for n, port in enumerate(ports))
    return App(f"/{name}", cmd=cmd, instances=instances, port_definitions=definitions)


def mapped(name: str, *ports: int, cmd: str = "x") -> App:
    mappings = tuple(PortMapping(80 + n, 0, port) for n, port in enumerate(ports))
    return App(f"/{name}", cmd=cmd, container=Container(port_mappings=mappings), port_definitions=None)


def given(
    before: Sequence[App], after: Sequence[App], kept: Sequence[int] = ()
) -> dict[str, tuple[int, ...]]:
    made = service_ports_given(Group("/", tuple(before)), Group("/", tuple(after)), NUMBERS, kept=kept)
    for app in after:
        if app.id in made:
            ports = iter(made[app.id].service_ports)
            if app.container and app.container.port_mappings:
                mappings = tuple(
                    replace(each, service_port=next(ports)) for each in app.container.port_mappings
                )
                assert made[app.id] == replace(app, container=replace(app.container, port_mappings=mappings))
            else:
                definitions = tuple(replace(each, port=next(ports)) for each in app.port_definitions or ())
                assert made[app.id] == replace(app, port_definitions=definitions)
    return {id.strip("/"): tuple(each.service_ports) for id, each in made.items()}


SAME = app("a", 0)


@pytest.mark.parametrize(
    ("before", "after", "kept", "wanted"),
    [
        ([], [app("a", 0, 0)], [], {"a": (10000, 10001)}),
        ([], [app("a", 0), app("b", 0)], [], {"a": (10000,), "b": (10001,)}),
        ([], [app("a", 7, 0)], [], {"a": (7, 10000)}),
        ([], [app("a", 7)], [], {}),
        ([], [mapped("a", 0, 10000, 0)], [], {"a": (10001, 10000, 10002)}),
        ([], [app("a", 0)], [10000, 10001], {"a": (10002,)}),
        ([app("b", 10000)], [app("a", 0)], [], {"a": (10001,)}),
        ([app("b", 10000)], [app("b", 10000), app("a", 0)], [], {"a": (10001,)}),
        ([app("a", 10002)], [app("a", 0, cmd="y")], [], {"a": (10002,)}),
        ([app("a", 10002)], [app("a", 0, 0, cmd="y")], [], {"a": (10002, 10000)}),
        ([app("a", 10002, 10003)], [app("a", 0, 10002)], [], {"a": (10003, 10002)}),
        ([app("a", 7)], [app("a", 0)], [], {"a": (10000,)}),
        ([app("a", 9999, 10004)], [app("a", 0)], [], {"a": (10000,)}),
        ([mapped("a", 10003)], [mapped("a", 0, cmd="y")], [], {"a": (10003,)}),
        ([app("a", 0)], [app("a", 0, instances=3)], [], {}),
        ([app("a", 0)], [app("a", 0, cmd="y", instances=3)], [], {"a": (10000,)}),
        ([SAME], [SAME], [], {}),
    ],
)  # fmt: skip
def test_app_that_leaves_ports_open_gets_them(
    before: list[App], after: list[App], kept: list[int], wanted: dict[str, tuple[int, ...]]
) -> None:
    assert given(before, after, kept) == wanted


def test_app_gets_no_port_when_all_are_in_use() -> None:
    with pytest.raises(BadConfiguration, match="/a: all service ports from 10000 to 10003 are in use"):
        given([], [app("a", 0, 0, 0, 0, 0)])
    assert given([], [app("a", 0, 0, 0, 0)]) == {"a": tuple(NUMBERS)}
