"""Demo of jobs of every kind in one minute."""

import subprocess
import sys
from typing import Final

from mesos_gpu.cli import output
from mesos_gpu.cli.demo.story import WAIT_S, Story, act
from mesos_gpu.local.stack import NodeSpec
from mesos_gpu.model.words import counted

T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-80GB"
NODES: Final = (NodeSpec(4, T4), NodeSpec(4, A100))
ARGUMENTS: Final = ("--share-linger", "1")


class Whole(Story):
    """Jobs from the command line, bursts, whole nodes, shares, waiting, failing and killed jobs."""

    def play(self) -> None:
        """Run each kind of job, one after the other."""
        self.until("both nodes report their GPUs", lambda: len(self.client.gpus()) == 8)
        self._cli_job()
        self._burst()
        self._whole_node()
        self._shares()
        self._full_model()
        self._failing()
        self._killed()

    def _cli_job(self) -> None:
        act("a job from the command line")
        command = "echo hello from $MESOS_TASK_ID on GPU $NVIDIA_VISIBLE_DEVICES"
        words = ["run", "--gpus", "1", "--name", "hello", "--shell", "--", command]
        done = subprocess.run(
            [sys.executable, "-m", "mesos_gpu", "--url", self.stack.url, *words],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        output.line(f"  $ mesos-gpu run --gpus 1 --shell -- '{command}'")
        output.line(f"  {done.stdout.strip()}")
        self.check("the command line's job says hello", done.returncode == 0 and "on GPU GPU-" in done.stdout)

    def _burst(self) -> None:
        act("a burst of 8 jobs on 8 GPUs")
        jobs = [self.submit("burst", "sleep 1.5", gpus=1) for _ in range(8)]
        self.until("all eight run at once", lambda: self.states(jobs) == {"running"})
        gpus = [gpu for job in jobs for gpu in self.client.job(job["id"])["gpu_ids"]]
        self.check("eight jobs hold eight GPUs", len(set(gpus)) == 8)
        self.end(jobs, "finished")

    def _whole_node(self) -> None:
        act("a job that needs all GPUs of a node")
        job = self.submit("whole-node", "sleep 1", gpus=4)
        self.end([job], "finished")
        output.line(f"  ran on {self.client.job(job['id'])['hostname']} with 4 GPUs")

    def _shares(self) -> None:
        """Run jobs with shares beside one with a whole GPU, and resize one of the shares."""
        act("jobs that share GPUs, beside one that has a whole one")
        quarters = [self.submit("quarter", "sleep 600", gpus=0.25) for _ in range(4)]
        exact = self.submit("exact", "sleep 600", gpus=1, gpu_memory_mib=20480, gpu_compute_pct=30)
        whole = self.submit("whole", "sleep 600", gpus=1)
        jobs = [*quarters, exact, whole]
        self.until("all six run", lambda: self.states(jobs) == {"running"})
        self.draw("gpus")
        shared = {gpu["uuid"]: gpu["shares"] for gpu in self.client.gpus() if gpu["shares"]}
        shares = {share["job_id"]: share for shares_of_gpu in shared.values() for share in shares_of_gpu}
        self.check(
            "each share is listed with its job", shares.keys() == {job["id"] for job in [*quarters, exact]}
        )
        amounts = shares[exact["id"]]["memory_mib"], shares[exact["id"]]["compute_pct"]
        self.check("the exact one has 20480 MiB and 30 %", amounts == (20480, 30))
        self.check("each says its guarantee", all(share["guarantee"]["memory"] for share in shares.values()))
        self.until("Mesos counts each card once", lambda: self._in_mesos() == len(shared) + 1)
        self.check(f"Mesos says that {counted(len(shared), 'shared GPU')} and a whole one are in use", True)
        self.draw("resize", exact["id"], "--gpu-memory", "30GiB", "--gpu-compute", "50", "--wait")
        share = self.client.job(exact["id"])["share"]
        self.check("it has 30720 MiB now", share is not None and share["memory_mib"] == 30720)
        for job in jobs:
            self.client.kill(job["id"])
        self.end(jobs, "killed")
        self.until("Mesos has all GPUs back", lambda: self._in_mesos() == 0)
        self.check("nothing is shared any more", not any(gpu["sharing"] for gpu in self.client.gpus()))

    def _in_mesos(self) -> int:
        (framework,) = self.stack.cluster.master.state()["frameworks"]
        return int(framework["used_resources"]["gpus"])

    def _full_model(self) -> None:
        act("a job that asks for a model that is full")
        holders = [self.submit("holder", "sleep 3", gpus=2, gpu_model=A100) for _ in range(2)]
        self.until("the model is full", lambda: self.states(holders) == {"running"})
        waiting = self.submit("patient", "true", gpus=1, gpu_model=A100)
        why = self.client.why(waiting["id"])
        output.line(f"  $ mesos-gpu why {waiting['id']}")
        output.line(f"  {why['summary']}")
        self.check("it waits, and can run later", why["state"] == "pending" and why["can_ever_run"])
        self.end([*holders, waiting], "finished")

    def _failing(self) -> None:
        act("a job that fails")
        job = self.submit("failing", "echo 'something is wrong' >&2; exit 3", gpus=1)
        self.end([job], "failed")
        self.check("its exit code is 3", self.client.job(job["id"])["exit_code"] == 3)

    def _killed(self) -> None:
        act("a job that is killed")
        job = self.submit("killed", "sleep 600", gpus=2)
        self.until("it runs", lambda: self.states([job]) == {"running"})
        self.client.kill(job["id"])
        self.end([job], "killed")

    def show_end(self) -> None:
        act("final state")
        jobs = self.client.jobs()
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
                for n in self.client.nodes()
            ],
            empty="no agents",
        )
        output.line("")
        output.table(
            ("GPU", "MODEL", "HEALTH", "HOST", "HELD BY"),
            [
                (g["uuid"], g["model"], g["health"], g["hostname"], g["job_id"] or "")
                for g in self.client.gpus()
            ],
            empty="no GPUs",
        )


STORY: Final = Whole
