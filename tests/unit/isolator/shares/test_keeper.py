"""The keeper of an agent's shared cards: its tasks say that they run, and end when they are told to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from isolator.agent.agent_api import Settings
from isolator.shares.keeper import Keeper, call_later
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent


@dataclass
class Scene:
    """A keeper and its agent.

    Attributes:
        agent: A double of Mesos' agent.
        thread: Runs the keeper.
        codes: Exit code of the keeper, once it has ended.
        later: Functions that the keeper wants called some time after its last task has ended.
    """

    agent: ScriptedAgent
    thread: threading.Thread
    codes: list[int]
    later: list[Callable[[], None]]

    def launch(self, task_id: str) -> None:
        self.agent.send(
            {"type": "LAUNCH", "launch": {"task": {"task_id": {"value": task_id}, "name": "shared-g"}}}
        )
        self.agent.wait_for(lambda: "TASK_RUNNING" in self.agent.states(task_id))

    def kill(self, task_id: str) -> None:
        self.agent.send({"type": "KILL", "kill": {"task_id": {"value": task_id}}})


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    with scripted_agent() as agent:
        later, codes = list[Callable[[], None]](), list[int]()
        keeper = Keeper(Settings.from_environment(agent.environment(str(directory))), later.append)
        thread = threading.Thread(target=lambda: codes.append(keeper.run()))
        thread.start()
        try:
            yield Scene(agent, thread, codes, later)
        finally:
            agent.send({"type": "SHUTDOWN"})
            thread.join(60)
            assert not thread.is_alive()


def test_keeper_holds_each_card_until_its_own_task_is_killed(tmp_path: Path) -> None:
    with scene(tmp_path) as seen:
        seen.launch("c1")
        seen.launch("c2")
        seen.kill("c1")
        seen.agent.wait_for(lambda: "TASK_KILLED" in seen.agent.states("c1"))
        assert seen.agent.states("c2") == ["TASK_RUNNING"]
        seen.kill("c1")  # Mesos may say it twice
        seen.kill("another keeper's")
        seen.kill("c2")
        wait_until("the keeper wants to end", lambda: seen.later)
        (end,) = seen.later
        assert seen.thread.is_alive()
        end()
        seen.thread.join(60)
        assert seen.codes == [0], "it ends with its last task"
        assert seen.agent.states("c1").count("TASK_KILLED") == 1


def test_keeper_holds_a_card_that_is_launched_just_after_its_last_task_has_ended(tmp_path: Path) -> None:
    with scene(tmp_path) as seen:
        seen.launch("c1")
        seen.kill("c1")
        wait_until("the keeper wants to end", lambda: seen.later)
        seen.launch("c2")
        seen.later[0]()
        seen.kill("c2")
        seen.agent.wait_for(lambda: "TASK_KILLED" in seen.agent.states("c2"))
        wait_until("the keeper wants to end again", lambda: len(seen.later) == 2)
        assert seen.codes == []


def test_keeper_ends_some_time_after_its_last_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isolator.shares.keeper.LINGER_S", 3600.0)
    called = threading.Event()
    call_later(called.set)
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    (timer,) = [each for each in timers if each.function == called.set]
    assert (timer.interval, timer.daemon) == (3600.0, True)
    timer.cancel()
    timer.function()
    assert called.is_set()
