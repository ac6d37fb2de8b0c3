"""Demo of a pool of several teams: one borrows all of it, and another reclaims its guarantee."""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from mesos_gpu.cli import output
from mesos_gpu.cli.demo.story import Story, act
from mesos_gpu.local.stack import NodeSpec

NODES: Final = tuple([NodeSpec(4)] * 4)
ARGUMENTS: Final = ("--share-linger", "1", "--report-interval", "2")
_QUEUES: Final = """\
comment: two teams, one pool
queues:
  production: {guarantee_gpus: [{nodes: 2, gpus: 4}]}
  dev: {notice_s: 5, weight: 2}
  dev/vision: {}
  dev/speech: {budget: {gpu_hours: 0.002, period: day, on_empty: no_start}}
"""
#: Waits for a notice, prints it, and ends.
_TRAINS: Final = """\
until [ -e "$MESOS_GPU_NOTICE" ]; do sleep 0.2; done
cat "$MESOS_GPU_NOTICE"
sleep 2
exit 75"""


class Tenants(Story):
    """Borrowing, a guarantee, notices, the return, accounts and a budget."""

    def play(self) -> None:
        """Run the steps, each of which builds on the one before."""
        self.until("the nodes report their GPUs", lambda: len(self.client.gpus()) == 16)
        self._tree()
        dev = self._borrow()
        gang = self._reclaim(dev)
        self._return(dev, gang)
        self._budget()
        self._accounts()

    def _tree(self) -> None:
        act("two teams, one pool: production is guaranteed two whole nodes, dev may use what is left over")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "queues.yaml"
            path.write_text(_QUEUES)
            for line in _QUEUES.splitlines():
                output.line(f"  {line}")
            self.draw("queue", "apply", "--yes", str(path))

    def _borrow(self) -> list[Any]:
        act("production is idle, so dev borrows all 16 GPUs")
        jobs = [self.submit("train", _TRAINS, gpus=4, queue="dev/vision", preemptible=True) for _ in range(4)]
        self.until("all four run", lambda: self.states(jobs) == {"running"})
        self.draw("queue", "list")
        return jobs

    def _reclaim(self, dev: list[Any]) -> Any:
        act("production's job comes: two nodes of four GPUs")
        gang = self.submit("serve", "sleep 600", gpus=4, tasks=2, queue="production")
        self.until("a job got its notice", lambda: self._told(dev) is not None)
        self.draw("why", gang["id"])
        self.until("it runs", lambda: self.states([gang]) == {"running"})
        stopped = [job for job in dev if self.states([job]) != {"running"}]
        self.check("two of dev's jobs made room, and no more", len(stopped) == 2)
        notice = self._told(stopped) or {}
        output.line(f"  what one of them read in $MESOS_GPU_NOTICE: {notice.get('why')}")
        self.check("the notice names the job that preempts it", notice.get("by") == gang["id"])
        return gang

    def _told(self, jobs: list[Any]) -> dict[str, Any] | None:
        """Return the first notice that one of the jobs printed; None if none did."""
        for job in jobs:
            for launch in self.client.tasks(job["id"]):
                logs = self.client.logs(
                    job["id"], stream="stdout", offset=0, length=10000, task_id=launch["id"]
                )
                if logs["data"].strip():
                    return dict(json.loads(logs["data"]))
        return None

    def _return(self, dev: list[Any], gang: Any) -> None:
        act("production has finished: the preempted jobs run again, with all their attempts")
        self.client.kill(gang["id"])
        self.until("dev has all GPUs again", lambda: self.states(dev) == {"running"})
        attempts = {self.client.job(job["id"])["attempts"] for job in dev}
        self.check("no attempt was used up", attempts == {0})
        for job in dev:
            self.client.kill(job["id"])
        self.end(dev, "killed")

    def _budget(self) -> None:
        act("speech has a budget of 0.002 GPU hours a day: 7.2 s of one GPU")
        first = self.submit("first", "sleep 10", gpus=1, queue="dev/speech", preemptible=True)
        self.end([first], "finished")
        second = self.submit("second", "true", gpus=1, queue="dev/speech", preemptible=True)
        self.until("it waits for its budget", lambda: "budget" in self.client.why(second["id"])["summary"])
        self.draw("why", second["id"])
        self.draw("budget", "list")
        self.draw("budget", "grant", "dev/speech", "1")
        self.end([second], "finished")

    def _accounts(self) -> None:
        act("usage of each queue")
        self.draw("report", "usage", "--by", "queue")
        self.draw("report", "fairness", "--by", "queue")


STORY: Final = Tenants
