"""A long spell of bad luck: parts are killed at random while jobs come and go. Every job ends once."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.fault.test_kill9 import VICTIMS, everything_is_free, kill_executor, states

pytestmark = [pytest.mark.cluster, pytest.mark.long]
ROUNDS, JOBS = 12, 40


def test_random_kills_lose_nothing_and_run_nothing_twice(open_directory: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    done = open_directory / "done"
    done.touch()
    done.chmod(0o666)
    with Stack(open_directory / "stack", [NodeSpec(4)] * 2) as stack, client_of(stack, 8) as client:
        ids: list[str] = []
        killed_executors = 0
        for _ in range(ROUNDS):
            for _ in range(JOBS):
                command = f"sleep {chance.uniform(0.2, 2.5):.1f}; echo $MESOS_GPU_JOB_ID >> {done}"
                request = {"name": "load", "command": command, "cpus": 0.1, "mem_mib": 32}
                ids.append(client.submit({**request, "gpus": chance.choice([0, 1, 1, 2])})["id"])
            wait_until("something runs", lambda: "running" in states(client, ids).values())
            time.sleep(chance.uniform(0, 2))  # a random moment, not a wait for something
            kill = chance.choice(VICTIMS)
            if kill is kill_executor:
                kill_executor(stack, chance.randrange(8))
                killed_executors += 1
            else:
                kill(stack)
        wait_until("all have finished", lambda: set(states(client, ids).values()) == {"finished"}, 600)
        launches = {job: client.job(job)["launches"] for job in ids}
        lines = Counter(done.read_text().split())
        assert lines.keys() == launches.keys()
        # A command may have ended when its executor is killed before it says so: that job alone starts again.
        assert all(lines[job] <= launches[job] for job in ids)
        assert sum(launches.values()) - len(ids) <= killed_executors
        everything_is_free(stack, client)
