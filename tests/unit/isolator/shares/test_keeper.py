"""The keeper of an agent's shared cards: its tasks say that they run, and end when they are told to."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from isolator.agent.agent_api import Settings
from isolator.shares.keeper import Keeper
from mesos_gpu.testing.scripted_agent import ScriptedAgent, scripted_agent


@dataclass
class Scene:
    agent: ScriptedAgent
    thread: threading.Thread
    codes: list[int]

    def launch(self, task_id: str) -> None:
        self.agent.send(
            {"type": "LAUNCH", "launch": {"task": {"task_id": {"value": task_id}, "name": "shared-g"}}}
        )
        self.agent.wait_for(lambda: "TASK_RUNNING" in self.agent.states(task_id))

    def kill(self, task_id: str) -> None:
        self.agent.send({"type": "KILL", "kill": {"task_id": {"value": task_id}}})


@contextmanager
def scene(directory: Path, linger_s: float) -> Iterator[Scene]:
    with scripted_agent() as agent:
        keeper, codes = (
            Keeper(Settings.from_environment(agent.environment(str(directory))), linger_s),
            list[int](),
        )
        thread = threading.Thread(target=lambda: codes.append(keeper.run()))
        thread.start()
        try:
            yield Scene(agent, thread, codes)
        finally:
            agent.send({"type": "SHUTDOWN"})
            thread.join(60)
            assert not thread.is_alive()


def test_each_card_is_held_until_its_own_task_is_killed(tmp_path: Path) -> None:
    with scene(tmp_path, linger_s=0.05) as seen:
        seen.launch("c1")
        seen.launch("c2")
        seen.kill("c1")
        seen.agent.wait_for(lambda: "TASK_KILLED" in seen.agent.states("c1"))
        assert seen.agent.states("c2") == ["TASK_RUNNING"]
        assert seen.thread.is_alive()
        seen.kill("c1")  # Mesos may say it twice
        seen.kill("nobody's")
        seen.kill("c2")
        seen.thread.join(60)
        assert seen.codes == [0], "with its last task it goes"
        assert seen.agent.states("c1").count("TASK_KILLED") == 1


def test_what_is_launched_just_after_the_last_task_has_ended_is_held(tmp_path: Path) -> None:
    with scene(tmp_path, linger_s=2.0) as seen:
        seen.launch("c1")
        seen.kill("c1")
        seen.agent.wait_for(lambda: "TASK_KILLED" in seen.agent.states("c1"))
        begun = time.monotonic()
        seen.launch("c2")
        assert time.monotonic() - begun < 2.0, "else this says nothing"
        seen.thread.join(3.0)
        assert seen.thread.is_alive()
        assert seen.agent.states("c2") == ["TASK_RUNNING"]
