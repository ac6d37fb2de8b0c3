"""A scheduler whose cluster plays along: tasks run once they are launched, and end once they are told to."""

import threading
import time
from typing import Any

from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import AgentId, TaskId
from mesos_gpu.model.tasks.status import Status
from tests.conftest import wait_until
from tests.contract.marathon.test_marathon_api import Marathon
from tests.doubles.builders import offer

_STEP_S = 0.02
_RUNS_S = 0.5  # what ends by itself


class Played(Marathon):
    """`room` is whether there are offers, `works` whether tasks run; else they fail. `ends_as`: the state in
    which those that run end after a moment; "": they run on."""

    def __init__(self) -> None:
        super().__init__(now=time.time())
        self.room, self.works, self.ends_as = True, True, ""
        self._running: list[tuple[float, str, str]] = []  # when it began, task, agent
        self._over = threading.Event()
        self._seen, self._steps = 0, 0
        self._thread = threading.Thread(target=self._play, name="cluster")
        self._thread.start()

    def _play(self) -> None:
        while not self._over.wait(_STEP_S):
            self._steps += 1
            self.clock.time += 0.5
            if self.room:
                self.offered = getattr(self, "offered", 0) + 1
                self.daemon.put(ev.OffersArrived((offer(f"o-{self.offered}", "a1", cpus=16),)))
            calls = list(self.driver.calls)
            for name, what in calls[self._seen :]:
                self._answer(name, what)
            self._seen = len(calls)
            for began, task, agent in list(self._running) if self.ends_as else ():
                if time.monotonic() - began > _RUNS_S:
                    self._running.remove((began, task, agent))
                    self._tell(task, self.ends_as, agent)

    def full(self) -> None:
        """No room from now on: the last offer was made before this returns."""
        self.room = False
        begun = self._steps
        wait_until("the step that may have seen room ends", lambda: self._steps > begun)

    def _answer(self, name: str, what: Any) -> None:
        if name == "kill":
            self._tell(what[0], "TASK_KILLED", what[1])
        for info in what[1] if name == "accept" else ():
            if info["name"] != "gpu-monitor":  # its reports are the test's
                state = "TASK_RUNNING" if self.works else "TASK_FAILED"
                task, agent = info["task_id"]["value"], info["agent_id"]["value"]
                self._tell(task, state, agent)
                self._running.append((time.monotonic(), task, agent))

    def _tell(self, task: str, state: str, agent: str) -> None:
        status = Status(TaskId(task), state, AgentId(agent), message="out of luck", uuid="u")
        self.daemon.put(ev.StatusArrived(status))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        super().close()
