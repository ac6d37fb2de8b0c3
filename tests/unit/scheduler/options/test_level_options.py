"""Levels of the fabric in the scheduler: its option, its refusal to start, its log and what an operator sees."""

import logging
from dataclasses import replace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from isolator.node.findings import Level
from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.api.spec.shapes import Status
from mesos_gpu.api.v1.cluster.nodes import all_nodes
from mesos_gpu.cli import main
from mesos_gpu.cli.host.of_scheduler import of_status
from mesos_gpu.cli.reach.reach import Reach
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.scheduler import __main__ as command
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.scheduler.narrator import EventLogger
from tests.unit.scheduler.test_share_options import settings_of

LEVELS = ("block", "rack")
WORDS = "rack r1 is in block b1 on a0, and in block b2 on a2"


def node(number: int, block: str) -> Node:
    name = f"a{number}"
    return Node(AgentId(name), name, attributes={"block": block, "rack": "r1"}, reported_at=1.0)


NODES = (node(0, "b1"), node(1, "b1"), node(2, "b2"))


@pytest.mark.parametrize(
    ("text", "levels"),
    [("", ()), ("block,rack,host", LEVELS), ("block,rack", LEVELS), ("host", ()), ("rack", ("rack",))],
)
def test_topology_option_names_levels_without_the_node(
    text: str, levels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--topology", text) if text else ()
    assert settings_of(monkeypatch, *words).placing.levels == levels


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("block,,rack", "'' in 'block,,rack' is not the name of a level"),
        ("block rack", "is not the name of a level"),
        ("rack,rack", "contains rack twice; give each level once"),
        ("host,rack", "host is the node itself; put it last, or leave it out"),
        ("a,b,c,d,e,f,g,h,i", "has 9 levels; give at most 8"),
    ],
)
def test_topology_option_that_is_malformed_is_refused(text: str, words: str) -> None:
    line = ["scheduler", "--master", "m:1", "--state", "/nowhere/s", "--topology", text]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2
    assert words in done.output


def test_scheduler_refuses_to_start_with_levels_that_are_not_nested() -> None:
    refused = command.unnested_levels(LEVELS, NODES)
    assert isinstance(refused, BadConfiguration)
    assert WORDS in refused.what
    assert "correct the agents" in refused.remedy
    assert command.unnested_levels(("rack", "block"), NODES[:2]) is None
    assert command.unnested_levels((), NODES) is None
    assert command.unnested_levels(LEVELS, (*NODES[:2], replace(NODES[2], lost_at=1.0))) is None


class FailedDaemon:
    """A daemon that keeps what it is given."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.given: list[object] = []
        self.failures: list[Exception] = []

    def put(self, event: object) -> None:
        """Keep an event."""
        self.given.append(event)

    def fail(self, error: Exception) -> None:
        """Keep an error."""
        self.failures.append(error)


@pytest.mark.parametrize(("levels", "blocks", "fails"), [
    (LEVELS, ("b1", "b2"), True), (LEVELS, ("b1", "b1"), False), ((), ("b1", "b2"), False),
])  # fmt: skip
def test_first_offers_of_a_new_scheduler_end_it_where_levels_are_not_nested(
    levels: tuple[str, ...], blocks: tuple[str, ...], fails: bool
) -> None:
    daemon, sink = FailedDaemon(), command.Sink(lambda: 1.0, levels=levels)
    sink.daemon = cast(Daemon, daemon)
    offers = [offer_of(f"a{i}", block) for i, block in enumerate(blocks)]
    sink(pd.Offers(offers))
    assert [str(error).partition(": ")[0] for error in daemon.failures] == ["--topology block,rack"] * fails
    assert len(daemon.given) == (not fails)
    sink(pd.Offers([offer_of("a8", "b8"), offer_of("a9", "b9")]))
    assert len(daemon.failures) == fails, "agents that come later are outside of the levels"


def offer_of(agent: str, block: str) -> dict[str, Any]:
    """Return an offer as the master writes it."""
    attributes = {"block": block, "rack": "r1"}
    return {
        "id": {"value": f"o-{agent}"},
        "agent_id": {"value": agent},
        "framework_id": {"value": "f"},
        "hostname": agent,
        "url": {"scheme": "http", "address": {"hostname": agent, "ip": "127.0.0.1", "port": 5051}},
        "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1.0}}],
        "attributes": [
            {"name": name, "type": "TEXT", "text": {"value": value}} for name, value in attributes.items()
        ],
    }


def test_narrator_warns_once_of_a_node_outside_of_the_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mesos_gpu.scheduler")
    state = State(started_at=0.0)
    narrator = EventLogger(state, levels=LEVELS)
    for each in NODES:
        state.cluster.set_node(each)
    for _ in range(2):
        narrator.look(state, 1.0, 300.0, 60.0)
    state.cluster.set_node(replace(NODES[2], attributes={"block": "b1", "rack": "r1"}))
    narrator.look(state, 2.0, 300.0, 60.0)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"node a2: is outside the levels of --topology: {WORDS}"),
        ("INFO", "node a2: fits the levels of --topology"),
    ]


def test_node_outside_of_the_levels_is_shown_with_its_contradiction() -> None:
    state = State(started_at=0.0)
    for each in NODES:
        state.cluster.set_node(each)
    view = View(state, Settings.of("e", "m", levels=LEVELS), 1.0)
    assert {each["hostname"]: each["level_problem"] for each in all_nodes(view)} == {
        "a0": None,
        "a1": None,
        "a2": WORDS,
    }


def test_doctor_warns_of_nodes_outside_of_the_levels() -> None:
    told = f"1 node is is outside the levels of --topology: {WORDS}"
    status = {"open_to_all": False, "tls": None, "issuer_problem": None, "level_problem": told}
    findings = of_status(Reach("http://127.0.0.1:8080"), cast(Status, status))
    assert [(each.level, each.text) for each in findings if each.check == "levels"] == [(Level.WARN, told)]
