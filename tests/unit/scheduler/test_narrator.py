"""Log lines of the scheduler: each event once, as text or JSON, and no text breaks a line."""

import json
import logging
from dataclasses import replace

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.scheduler.logs import AUDIT, Json, LogFormat, Text, set_up
from mesos_gpu.scheduler.narrator import EventLogger
from tests.doubles.builders import World, gpu, offer


class Told(World):
    """A world whose effects are told."""

    def listen(self) -> None:
        self.narrator = EventLogger(self.state)

    def feed(self, *events: ev.Event) -> list[object]:  # type: ignore[override]
        for event in events:
            self.narrator.heard(event)
        effects = super().feed(*events)
        self.narrator.saved(effects)
        return effects  # type: ignore[return-value]


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Told:
    caplog.set_level(logging.INFO, "mesos_gpu.scheduler")
    world = Told()
    world.listen()
    return world


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return messages


def test_narrator_logs_the_life_of_a_job(world: Told, caplog: pytest.LogCaptureFixture) -> None:
    world.register()
    assert said(caplog) == ["registered with http://master:5050 as fw-1"]
    world.node("a1", gpu("g0"))
    assert said(caplog) == ["node a1.example (agent a1): up", "GPU g0 on a1.example: ok"]
    world.submit(gpus=1)
    world.status("j1.1", "TASK_RUNNING")
    world.status("j1.1", "TASK_RUNNING")
    world.status("j1.1", "TASK_FAILED", message="exit status 3")
    assert said(caplog) == [
        "job j1: pending: queued",
        "job j1: pending -> starting: launched on a1.example",
        "job j1: starting -> running: running",
        "job j1: running -> failed: exit status 3",
    ]
    assert caplog.records == []


def test_narrator_logs_cards_nodes_and_drains(world: Told, caplog: pytest.LogCaptureFixture) -> None:
    world.register()
    world.node("a1", gpu("g0"))
    said(caplog)
    world.report("a1", replace(gpu("g0"), health=Health.SICK, reason="XID 79"))
    world.report("a1", replace(gpu("g0"), health=Health.SICK, reason="XID 79"))
    world.report("a1", gpu("g0"))
    world.feed(ev.DrainRequested(Target.NODE, "a1.example", "new fan", "ann", 60.0))
    world.feed(ev.UndrainRequested(Target.NODE, "a1.example"))
    world.feed(ev.AgentLost(AgentId("a1")))
    world.offers(offer("later", "a1"))
    assert said(caplog) == [
        "GPU g0 on a1.example: ok -> sick: XID 79",
        "GPU g0 on a1.example: sick -> ok",
        "node a1.example is drained by ann: new fan, jobs that still run there are ended at its deadline",
        "node a1.example is no longer drained",
        "node a1.example (agent a1): lost",
        "node a1.example (agent a1): up",
    ]


def test_narrator_logs_a_deployment_from_begin_to_end(world: Told, caplog: pytest.LogCaptureFixture) -> None:
    said(caplog)
    web = App("/web", cmd="serve", instances=1, cpus=0.1, mem_mib=32, port_definitions=())
    world.feed(ev.AppsChanged("d1", Group("/", (web,))))
    world.feed(ev.DeploymentDeleted("d1", "d2", force=True))
    lines = [line for line in said(caplog) if line.startswith("deployment")]
    assert lines[0].startswith("deployment d1: begins for /web, step 1 of ")
    assert lines[-1] == "deployment d1: ended before its last step"


def test_narrator_logs_unknown_tasks_refusals_and_loss_of_the_master(
    world: Told, caplog: pytest.LogCaptureFixture
) -> None:
    said(caplog)
    world.status("stranger.1", "TASK_RUNNING")
    world.status("stranger.1", "TASK_RUNNING")
    world.narrator.refused(ev.KillRequested(JobId("x")), NotFound("there is no job x", remedy="look"))
    world.feed(ev.Disconnected())
    assert said(caplog) == [
        "unknown task stranger.1 runs on a1 and keeps its GPUs: see mesos-gpu tasks unknown list",
        "refused: KillRequested: there is no job x",
        "disconnected from the master: tasks continue, nothing is launched until it is connected again",
    ]


def record(message: str, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("mesos_gpu.scheduler", logging.INFO, __file__, 1, message, (), None)
    made.__dict__.update(more)
    return made


@pytest.mark.parametrize("bad", ["a\n2026-01-01 INFO forged", "a\r\x1b[2J", "a\u202eb", "a\x85b"])
def test_log_message_has_one_line(bad: str) -> None:
    for form in (Text(), Json()):
        shown = form.format(record(bad))
        assert shown.isprintable()
    assert json.loads(Json().format(record(bad)))["message"] == bad


def test_log_json_has_the_fields_of_the_line() -> None:
    body = json.loads(Json().format(record("job j1: running", fields={"job": "j1", "exit_code": None})))
    assert body.pop("at").endswith("+00:00")
    assert (body["level"], body["logger"], body["message"]) == (
        "INFO",
        "mesos_gpu.scheduler",
        "job j1: running",
    )
    assert (body["job"], body["exit_code"]) == ("j1", None)


def test_audit_lines_are_logged_at_every_level() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        root.handlers = []
        set_up("ERROR", LogFormat.TEXT)
        assert logging.getLogger(AUDIT).isEnabledFor(logging.INFO)
        assert not logging.getLogger("mesos_gpu.scheduler").isEnabledFor(logging.INFO)
    finally:
        root.handlers = handlers
        root.setLevel(level)
        logging.getLogger(AUDIT).setLevel(logging.NOTSET)


def test_narrator_logs_a_shared_card_that_is_not_held_in_mesos_as_an_error_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    state = State(started_at=0.0)
    narrator = EventLogger(state)
    state.gpus.sharers = {GpuId("g1"): {TaskId("j1.1"): Share(250, 1024, 1024, Method.SHIM_WINDOWS)}}
    state.gpus.uncovered = {GpuId("g1"): 100.0}
    for now in (100.0, 101.0, 399.0, 400.0, 500.0):
        narrator.look(state, now, 300.0, 60.0)
    state.gpus.uncovered = {}
    narrator.look(state, 501.0, 300.0, 60.0)
    narrator.look(state, 502.0, 300.0, 60.0)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "WARNING",
            "GPU g1: no cover task holds it in Mesos now; it is used by j1.1, and gets no further shares",
        ),
        (
            "ERROR",
            "GPU g1: no cover task holds it in Mesos for 300 s: other frameworks have the GPUs of its node; it is used "
            "by j1.1, and gets no further shares; to move them to other GPUs: mesos-gpu gpu drain g1 --reason "
            "uncovered --deadline 1s",
        ),
        ("INFO", "GPU g1: its cover task in Mesos holds it again"),
    ]
