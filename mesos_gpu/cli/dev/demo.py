"""`mesos-gpu demo`: real Mesos, simulated GPUs, and a day in the life of a scheduler in a minute."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.cli.dev.watcher import Watcher
from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.words import counted

_PREFIX: Final = "mesos-gpu-demo-"  # of its directory, below that for temporary files
T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-80GB"
WAIT_S = 45.0


@click.command()
def demo() -> None:
    """Show it all on this machine: start, run jobs of every kind, check, stop."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as top:
        Path(top).chmod(0o755)
        output.note("starting Apache Mesos 1.11.0 with 2 agents of 4 simulated GPUs each")
        nodes, arguments = [NodeSpec(4, T4), NodeSpec(4, A100)], ["--share-linger", "1"]
        with Stack(Path(top) / "stack", nodes, scheduler_arguments=arguments) as stack:
            output.line(f"dashboard {stack.url}   Mesos master {stack.cluster.master.url}")
            with Client(stack.url) as client:
                click.get_current_context().exit(_Demo(stack, client).run())


def left_behind() -> list[Path]:
    """Directories of demos of this user, running or killed. Others can make names in a directory that all share, and
    what is removed on the word of such a directory must be ours."""
    directories = Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")
    return [path / "stack" for path in directories if _is_ours(path.lstat())]


def _is_ours(status: os.stat_result) -> bool:
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not shared


class _Demo:
    """The story, and what must be true at its end."""

    def __init__(self, stack: Stack, client: Client) -> None:
        self._stack, self._client = stack, client
        self._failures: list[str] = []

    def run(self) -> int:
        """All acts; the exit code."""
        self._until("both nodes report their GPUs", lambda: len(self._client.gpus()) == 8)
        with Watcher(self._stack.scheduler.port, self._stack.cluster.master.port) as watcher:
            self._cli_job()
            self._burst()
            self._whole_node()
            self._shares()
            self._full_model()
            self._failing()
            self._killed()
        self._tables()
        return self._verdict(watcher)

    def _cli_job(self) -> None:
        _act("a job from the command line")
        command = "echo hello from $MESOS_TASK_ID on GPU $NVIDIA_VISIBLE_DEVICES"
        words = ["run", "--gpus", "1", "--name", "hello", "--shell", "--", command]
        done = subprocess.run(
            [sys.executable, "-m", "mesos_gpu", "--url", self._stack.url, *words],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        output.line(f"  $ mesos-gpu run --gpus 1 --shell -- '{command}'")
        output.line(f"  {done.stdout.strip()}")
        self._check(
            "the command line's job says hello", done.returncode == 0 and "on GPU GPU-" in done.stdout
        )

    def _burst(self) -> None:
        _act("a burst of 8 jobs on 8 GPUs")
        jobs = [self._submit("burst", "sleep 1.5", gpus=1) for _ in range(8)]
        self._until("all eight run at once", lambda: self._states(jobs) == {"running"})
        gpus = [gpu for job in jobs for gpu in self._client.job(job["id"])["gpu_ids"]]
        self._check("eight jobs hold eight GPUs", len(set(gpus)) == 8)
        self._end(jobs, "finished")

    def _whole_node(self) -> None:
        _act("a job that needs all GPUs of a node")
        job = self._submit("whole-node", "sleep 1", gpus=4)
        self._end([job], "finished")
        output.line(f"  ran on {self._client.job(job['id'])['hostname']} with 4 GPUs")

    def _shares(self) -> None:
        _act("jobs that share GPUs, beside one that has a whole one")
        quarters = [self._submit("quarter", "sleep 600", gpus=0.25) for _ in range(4)]
        exact = self._submit("exact", "sleep 600", gpus=1, gpu_memory_mib=20480, gpu_compute_pct=30)
        whole = self._submit("whole", "sleep 600", gpus=1)
        jobs = [*quarters, exact, whole]
        self._until("all six run", lambda: self._states(jobs) == {"running"})
        self._draw("gpus")
        shared = {gpu["uuid"]: gpu["shares"] for gpu in self._client.gpus() if gpu["shares"]}
        shares = {share["job_id"]: share for each in shared.values() for share in each}
        self._check(
            "each share is listed with its job", shares.keys() == {job["id"] for job in [*quarters, exact]}
        )
        amounts = shares[exact["id"]]["memory_mib"], shares[exact["id"]]["compute_pct"]
        self._check("the exact one has 20480 MiB and 30 %", amounts == (20480, 30))
        self._check("each says its guarantee", all(share["guarantee"]["memory"] for share in shares.values()))
        self._until("Mesos counts each card once", lambda: self._in_mesos() == len(shared) + 1)
        self._check(f"Mesos says that {counted(len(shared), 'shared GPU')} and a whole one are in use", True)
        self._draw("resize", exact["id"], "--gpu-memory", "30GiB", "--gpu-compute", "50", "--wait")
        share = self._client.job(exact["id"])["share"]
        self._check("it has 30720 MiB now", share is not None and share["memory_mib"] == 30720)
        for job in jobs:
            self._client.kill(job["id"])
        self._end(jobs, "killed")
        self._until("Mesos has all GPUs back", lambda: self._in_mesos() == 0)
        self._check("nothing is shared any more", not any(gpu["sharing"] for gpu in self._client.gpus()))

    def _in_mesos(self) -> int:
        (framework,) = self._stack.cluster.master.state()["frameworks"]
        return int(framework["used_resources"]["gpus"])

    def _draw(self, *words: str) -> None:
        """A command of the command line, and what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "mesos_gpu", "--url", self._stack.url, *words],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        output.line(f"  $ mesos-gpu {' '.join(words)}")
        for line in (done.stdout + done.stderr).splitlines():
            output.line(f"  {line}")
        self._check(f"mesos-gpu {words[0]} succeeds", done.returncode == 0)

    def _full_model(self) -> None:
        _act("a job that asks for a model that is full")
        holders = [self._submit("holder", "sleep 3", gpus=2, gpu_model=A100) for _ in range(2)]
        self._until("the model is full", lambda: self._states(holders) == {"running"})
        waiting = self._submit("patient", "true", gpus=1, gpu_model=A100)
        why = self._client.why(waiting["id"])
        output.line(f"  $ mesos-gpu why {waiting['id']}")
        output.line(f"  {why['summary']}")
        self._check("it waits, and can run one day", why["state"] == "pending" and why["can_ever_run"])
        self._end([*holders, waiting], "finished")

    def _failing(self) -> None:
        _act("a job that fails")
        job = self._submit("failing", "echo 'something is wrong' >&2; exit 3", gpus=1)
        self._end([job], "failed")
        self._check("its exit code is 3", self._client.job(job["id"])["exit_code"] == 3)

    def _killed(self) -> None:
        _act("a job that is killed")
        job = self._submit("killed", "sleep 600", gpus=2)
        self._until("it runs", lambda: self._states([job]) == {"running"})
        self._client.kill(job["id"])
        self._end([job], "killed")

    # --- helpers

    def _submit(self, name: str, command: str, **fields: Any) -> Job:
        request: Mapping[str, object] = {
            "name": name,
            "command": command,
            "cpus": 0.5,
            "mem_mib": 64,
            **fields,
        }
        return self._client.submit(request)

    def _states(self, jobs: list[Job]) -> set[str]:
        return {self._client.job(job["id"])["state"] for job in jobs}

    def _end(self, jobs: list[Job], state: str) -> None:
        self._until(
            f"{jobs[0]['name']} ended", lambda: all(ended(self._client.job(job["id"])) for job in jobs)
        )
        self._check(f"{jobs[0]['name']}: {state}", self._states(jobs) == {state})

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            poll(f"demo: {what}", condition, WAIT_S)
        except Unavailable as error:
            raise MesosGpuError(
                f"{error.what}\n{self._stack.scheduler.tail()}", remedy="see the log"
            ) from error

    def _check(self, what: str, good: bool) -> None:
        output.line(f"  {'ok' if good else 'WRONG'}: {what}")
        if not good:
            self._failures.append(what)

    def _tables(self) -> None:
        _act("what became of it")
        jobs = self._client.jobs()
        output.table(
            ("JOB", "STATE", "EXIT", "GPUS", "HOST", "MESSAGE"),
            [
                (j["id"], j["state"], j["exit_code"], j["gpus"], j["hostname"], j["message"])
                for j in reversed(jobs)
            ],
            empty="no jobs",
        )
        output.line("")
        output.table(
            ("AGENT", "STATE", "GPUS", "USED", "MODEL", "TASKS"),
            [
                (
                    n["hostname"],
                    n["state"],
                    n["gpus_total"],
                    n["gpus_used"],
                    n["attributes"]["gpu_model"],
                    n["tasks"],
                )
                for n in self._client.nodes()
            ],
            empty="no agents",
        )
        output.line("")
        output.table(
            ("GPU", "MODEL", "HEALTH", "HOST", "HELD BY"),
            [
                (g["uuid"], g["model"], g["health"], g["hostname"], g["job_id"] or "")
                for g in self._client.gpus()
            ],
            empty="no GPUs",
        )

    def _verdict(self, watcher: Watcher) -> int:
        findings = watcher.findings
        leaked = [gpu["uuid"] for gpu in self._client.gpus() if gpu["task_id"] is not None or gpu["sharing"]]
        in_mesos = self._stack.cluster.master.state()["frameworks"][0]
        self._check("the framework has its page in Mesos", in_mesos["webui_url"] == self._stack.url)
        self._check("Mesos has no GPU in use", in_mesos["used_resources"]["gpus"] == 0)
        self._check(
            f"Mesos' account was ours in each of {findings.compared} comparisons",
            findings.compared > 0 and not findings.disagreements,
        )
        for line in findings.disagreements[:5]:
            output.line(f"    {line}")
        finished = len(self._client.jobs(states=["finished"]))
        output.line("")
        overbooked = counted(len(findings.overbooked), "GPU")
        output.line(
            f"demo: {counted(finished, 'task')} finished, {overbooked} overbooked, {len(leaked)} leaked"
        )
        return 1 if self._failures or findings.overbooked or leaked else 0


def _act(title: str) -> None:
    output.line("")
    output.line(f"--- {title}")
