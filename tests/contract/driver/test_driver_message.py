"""MESSAGE as Mesos' v1 API has it, and events that are none."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.adapters.master import stream
from tests.doubles.scripted_master import FRAMEWORK_ID, Inbox, ScriptedMaster, Stream

FRAMEWORK = pd.FrameworkSettings("u", "n", ("*",), "", "h", 60.0)


@contextmanager
def started(master: ScriptedMaster) -> Iterator[tuple[pd.PymesosDriver, Inbox]]:
    inbox = Inbox()
    driver = pd.PymesosDriver(FRAMEWORK, master.address, inbox)
    driver.start()
    try:
        yield driver, inbox
    finally:
        driver.stop(teardown=False)


def test_a_message_says_agent_executor_and_data() -> None:
    with ScriptedMaster() as master, started(master) as (driver, inbox):
        inbox.wait_for(pd.Registered)
        driver.message("a1", "e1", b"{}")
        to = {"agent_id": {"value": "a1"}, "executor_id": {"value": "e1"}}
        assert master.wait_for("MESSAGE").body["message"] == {**to, "data": "e30="}


@pytest.mark.parametrize(
    "record",
    [b"\xff", b'{"timestamp":nan}', b"[]", b"[" * 200_000, b"", b"x" * 3000],
    ids=["no UTF-8", "nan", "no object", "deep", "empty", "too long"],
)
def test_an_event_that_cannot_be_read_is_passed_over_and_the_rest_comes(
    record: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To subscribe again would bring it again, for ever: whoever it is from would have stopped the whole cluster."""
    if record.startswith(b"x"):
        monkeypatch.setattr(stream, "MAX_RECORD", 2048)
    status = {"task_id": {"value": "t"}, "state": "TASK_RUNNING"}
    update = {"type": "UPDATE", "update": {"status": status}}
    offers = {"type": "OFFERS", "offers": {"offers": [{"id": {"value": "o"}}]}}
    with (
        ScriptedMaster(then=Stream(events=(record, update, record, offers))) as master,
        started(master) as (_, inbox),
    ):
        inbox.wait_for(pd.Offers)
        assert len(inbox.of(pd.Update)) == 1
        assert len(master.of_type("SUBSCRIBE")) == 1
    assert [text for text in caplog.messages if "skipped" in text]


def test_a_subscription_is_given_up_for_another_where_that_is_asked_for() -> None:
    with ScriptedMaster() as master, started(master) as (driver, inbox):
        inbox.wait_for(pd.Registered)
        driver.resubscribe()
        inbox.wait_for(pd.Disconnected)
        assert inbox.wait_for(pd.Registered, 2).reregistered
        again = master.wait_for("SUBSCRIBE", 2).body["subscribe"]["framework_info"]
        assert again["id"] == {"value": FRAMEWORK_ID}
        driver.revive()
