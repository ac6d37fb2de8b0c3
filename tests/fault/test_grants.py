"""Who was granted what, after crashes at the worst moments: never two of one card, never one too many."""

import contextlib
import os
from collections import Counter
from pathlib import Path

import pytest

from isolator.devices import cgroups
from isolator.devices.facts import read_inventory
from isolator.gpus.ledger import Ledger
from mesos_gpu.cli.client import Client
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.local.stack import Stack
from tests.conftest import wait_until
from tests.fault.test_kill9 import everything_is_free, kill_executor, states

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        os.geteuid() != 0 or "cgroup1" not in cgroups.mounted(),
        reason="reads grants from cgroup v1 devices, as root",
    ),
]
LOAD = 3  # cards; one of the cluster is left
#: Runs in the scheduler before its own code: no hook in the product.
AT_THE_WORST_MOMENT = """
import os, signal, sys
if os.environ.get("DIE_AT_ACCEPT") and "mesos_gpu.scheduler" in " ".join(sys.orig_argv):
    from mesos_gpu.adapters import pymesos_driver
    accept = pymesos_driver.PymesosDriver.accept
    def watched(self, offer_ids, task_infos, *, refuse_s, **more):
        jobs = [task for task in task_infos if not task["task_id"]["value"].startswith("gpu-monitor")]
        mark = os.environ["DIE_MARK"]
        if not jobs or os.path.exists(mark):
            return accept(self, offer_ids, task_infos, refuse_s=refuse_s, **more)
        open(mark, "w").close()
        if os.environ["DIE_AT_ACCEPT"] == "after":
            accept(self, offer_ids, task_infos, refuse_s=refuse_s, **more)
        os.kill(os.getpid(), signal.SIGKILL)
    pymesos_driver.PymesosDriver.accept = watched
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_scheduler_that_dies_at_a_launch_grants_nothing_twice_and_forgets_nothing(
    stack: Stack,
    client: Client,
    tmp_path: Path,
    open_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    """Between the intent in its store and the ACCEPT on the wire; and between the ACCEPT and the first word of it."""
    (tmp_path / "sitecustomize.py").write_text(AT_THE_WORST_MOMENT)
    done = open_directory / f"done-{moment}"
    done.touch()
    done.chmod(0o666)
    stack.scheduler.kill()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        patch.setenv("DIE_AT_ACCEPT", moment)
        patch.setenv("DIE_MARK", str(tmp_path / "died"))
        stack.scheduler.start().wait()
    command = f"sleep 1; echo $MESOS_GPU_JOB_ID >> {done}"
    name = f"worst-{moment}"
    request = {"name": name, "command": command, "gpus": 2, "cpus": 0.1, "mem_mib": 32}
    with contextlib.suppress(MesosGpuError), Client(stack.url) as impatient:  # it may die before it answers
        for _ in range(3):
            impatient.submit(request)
    wait_until("the scheduler died", lambda: not stack.scheduler.running)
    stack.scheduler.start().wait()
    ids = [job["id"] for job in client.jobs() if job["name"] == name]
    assert ids

    wait_until("all have finished", lambda: set(states(client, ids).values()) == {"finished"}, 90)
    assert Counter(done.read_text().split()) == Counter(ids), "each ran to its end once"
    assert {client.job(job_id)["attempts"] for job_id in ids} == {1}
    everything_is_free(stack, client)


def granted(node: Path) -> dict[str, tuple[set[int], set[int]]]:
    """Minors of each living task of a node: by the ledger, and by its cgroup's rules."""
    ledger = Ledger(node / "ledger.sqlite")
    minors = {gpu.id: gpu.minor for gpu in read_inventory(node).gpus}
    root = cgroups.mounted()["cgroup1"] / cgroups.OWN_ROOT
    minors_by_task = {}
    for holding in ledger.holdings():
        if not holding.gpus:
            continue
        lines = (root / holding.container / "devices.list").read_text().splitlines()
        allowed = {int(line.split(":")[1].split()[0]) for line in lines if line.startswith("c 195:")}
        minors_by_task[holding.task] = ({minors[gpu] for gpu in holding.gpus}, allowed - {255})
    return minors_by_task


def test_after_each_kill_the_cgroups_say_what_the_ledger_says(stack: Stack, client: Client) -> None:
    """Executors and agents are killed in turn under load; then one more task comes, and gets a card of its own."""
    nodes = [stack.directory / "nodes" / str(number) for number in (1, 2)]

    def agreed() -> bool:
        try:
            grants = [granted(node) for node in nodes]
        except FileNotFoundError:  # a task is being made or undone just now
            return False
        held = [minor for tasks in grants for minor, _ in tasks.values()]
        disjoint = all(
            sum(len(minors) for minors, _ in tasks.values())
            == len(set().union(*(m for m, _ in tasks.values())))
            for tasks in grants
            if tasks
        )
        same = all(minors == allowed for tasks in grants for minors, allowed in tasks.values())
        return len(held) == LOAD and disjoint and same

    request = {"name": "load", "command": "sleep 600", "gpus": 1, "cpus": 0.1, "mem_mib": 32}
    ids = [client.submit(request)["id"] for _ in range(LOAD)]
    wait_until("all run", lambda: set(states(client, ids).values()) == {"running"})
    for turn in range(4):
        if turn % 2:
            stack.cluster.agents[turn // 2].restart()
        else:
            kill_executor(stack, turn)
        wait_until(f"cgroups and ledgers agree after kill {turn}", agreed, 60)
        wait_until("all run again", lambda: set(states(client, ids).values()) == {"running"}, 60)
        busy = {gpu["uuid"] for gpu in client.gpus() if gpu["task_id"]}
        assert len(busy) == LOAD
        one_more = client.submit({**request, "command": "sleep 0.2", "name": "more"})["id"]
        wait_until("one more ran", lambda job=one_more: client.job(job)["state"] == "finished", 60)  # type: ignore[misc]
        (task,) = client.tasks(one_more)[-1:]
        assert busy.isdisjoint(task["gpu_ids"])
    for job_id in ids:
        client.kill(job_id)
    wait_until("all are killed", lambda: set(states(client, ids).values()) == {"killed"})
    everything_is_free(stack, client)
