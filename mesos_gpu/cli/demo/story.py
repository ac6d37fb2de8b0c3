"""Base of the demos: a real Mesos on this machine, commented steps, checks and a verdict."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.cli.demo.watcher import Watcher
from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import Stack
from mesos_gpu.model.words import counted

WAIT_S: Final = 45.0


class Story:
    """A demo that runs steps on a running stack, and counts failed checks."""

    def __init__(self, stack: Stack, client: Client) -> None:
        self.stack, self.client = stack, client
        self._failures: list[str] = []

    def run(self) -> int:
        """Run the demo while comparing Mesos' count of GPUs with the scheduler's; return the exit code."""
        with Watcher(self.stack.scheduler.port, self.stack.cluster.master.port) as watcher:
            self.play()
        self.show_end()
        return self._verdict(watcher)

    def play(self) -> None:
        """Run the steps."""
        raise NotImplementedError

    def show_end(self) -> None:
        """Print the final state."""

    def draw(self, *words: str) -> None:
        """Run a command of the command line, and print its output."""
        done = subprocess.run(
            [sys.executable, "-m", "mesos_gpu", "--url", self.stack.url, *words],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        output.line(f"  $ mesos-gpu {' '.join(words)}")
        for line in (done.stdout + done.stderr).splitlines():
            output.line(f"  {line}")
        self.check(f"mesos-gpu {words[0]} succeeds", done.returncode == 0)

    def submit(self, name: str, command: str, **fields: Any) -> Job:
        request: Mapping[str, object] = {
            "name": name,
            "command": command,
            "cpus": 0.5,
            "mem_mib": 64,
            **fields,
        }
        return self.client.submit(request)

    def states(self, jobs: list[Job]) -> set[str]:
        return {self.client.job(job["id"])["state"] for job in jobs}

    def end(self, jobs: list[Job], state: str) -> None:
        self.until(f"{jobs[0]['name']} ended", lambda: all(ended(self.client.job(job["id"])) for job in jobs))
        self.check(f"{jobs[0]['name']}: {state}", self.states(jobs) == {state})

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            poll(f"demo: {what}", condition, WAIT_S)
        except Unavailable as error:
            raise MesosGpuError(
                f"{error.what}\n{self.stack.scheduler.tail()}", remedy="look for errors in the log above"
            ) from error

    def check(self, what: str, good: bool) -> None:
        output.line(f"  {'ok' if good else 'WRONG'}: {what}")
        if not good:
            self._failures.append(what)

    def _verdict(self, watcher: Watcher) -> int:
        """Print the final checks, and return the exit code."""
        findings = watcher.findings
        leaked = [gpu["uuid"] for gpu in self.client.gpus() if gpu["task_id"] is not None or gpu["sharing"]]
        in_mesos = self.stack.cluster.master.state()["frameworks"][0]
        self.check("the framework has its page in Mesos", in_mesos["webui_url"] == self.stack.url)
        self.check("Mesos has no GPU in use", in_mesos["used_resources"]["gpus"] == 0)
        self.check(
            f"Mesos' account was ours in each of {findings.compared} comparisons",
            findings.compared > 0 and not findings.disagreements,
        )
        for line in findings.disagreements[:5]:
            output.line(f"    {line}")
        finished = len(self.client.jobs(states=["finished"]))
        output.line("")
        overbooked = counted(len(findings.overbooked), "GPU")
        output.line(
            f"demo: {counted(finished, 'task')} finished, {overbooked} overbooked, {len(leaked)} leaked"
        )
        return 1 if self._failures or findings.overbooked or leaked else 0


def act(title: str) -> None:
    """Print the title of a step."""
    output.line("")
    output.line(f"--- {title}")
