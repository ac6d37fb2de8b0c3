"""What Mesos counts of shared GPUs: another framework that wants them all, and kill -9 of every part at every time."""

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from isolator.gpus.ledger import Ledger
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.fault.test_kill9 import (
    executors,
    kill_agent,
    kill_executor,
    kill_master,
    kill_monitor,
    kill_scheduler,
)
from tests.frameworks.greedy import Greedy, greedy_gpus

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
LINGER_S: Final = 1.0
ARGUMENTS: Final = ("--share-linger", str(LINGER_S), "--report-interval", "2")
PATIENCE_S: Final = 90.0
_ALIVE: Final = ("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")


@contextmanager
def cluster(directory: Path, *arguments: str) -> Iterator[tuple[Stack, Client]]:
    with (
        Stack(directory, [NodeSpec(2)], scheduler_arguments=[*ARGUMENTS, *arguments]) as stack,
        client_of(stack, 2) as client,
    ):
        yield stack, client


def submit(client: Client, **fields: object) -> Job:
    return client.submit(
        {"name": "part", "command": "sleep 600", "cpus": 0.1, "mem_mib": 32, "gpus": 0.25, **fields}
    )


def ours(stack: Stack) -> dict[str, Any]:
    frameworks = stack.cluster.master.state()["frameworks"]
    return next((dict(each) for each in frameworks if each["name"] == "mesos_gpu"), {})


def used(stack: Stack) -> float:
    return float(ours(stack).get("used_resources", {}).get("gpus", 0))


def covers(stack: Stack) -> list[str]:
    tasks = ours(stack).get("tasks", ())
    return [task["id"] for task in tasks if task["id"].startswith("gpu-cover.")]


def shared(client: Client) -> list[str]:
    return [gpu["sharing"]["state"] for gpu in client.gpus() if gpu["sharing"]]


def run(client: Client, *jobs: Job) -> bool:
    return {client.job(job["id"])["state"] for job in jobs} == {"running"}


def kill_keeper(stack: Stack) -> None:
    """Kill all keepers: that of a card that was just closed may be about to end."""
    for victim in wait_until("a keeper", lambda: executors(stack, "gpu-keeper")):
        with suppress(psutil.NoSuchProcess):
            victim.kill()


def is_another(stack: Stack, old: list[str]) -> bool:
    """Whether another task holds the card."""
    return covers(stack) not in (old, [])


def is_taken(stack: Stack, client: Client) -> bool:
    """Let a keeper die while the scheduler does not listen: then another framework is first, unless an offer of the
    card waits for the scheduler. Whether it was."""
    wait_until("it is covered", lambda: shared(client) == ["covered"], PATIENCE_S)
    time.sleep(2 * LINGER_S)  # an idle scheduler wants no offers
    psutil.Process(stack.scheduler.pid).suspend()
    try:
        kill_keeper(stack)
        until = time.monotonic() + 10
        while greedy_gpus(stack) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        return greedy_gpus(stack) == 2
    finally:
        psutil.Process(stack.scheduler.pid).resume()


def all_gone(stack: Stack, client: Client, *jobs: Job) -> None:
    """End the jobs; then nothing of ours is left, in Mesos or on the host."""
    for job in jobs:
        client.kill(job["id"])
    wait_until("all have ended", lambda: all(ended(client.job(job["id"])) for job in jobs), PATIENCE_S)
    wait_until("Mesos has all cards back", lambda: used(stack) == 0 and not covers(stack), PATIENCE_S)
    ledger = Ledger(stack.directory / "nodes" / "1" / "ledger.sqlite")
    wait_until("the ledger is empty", lambda: not ledger.holdings(), PATIENCE_S)


# --- another framework


@pytest.mark.long
def test_shared_card_with_a_reservation_never_goes_to_another_framework(open_directory: Path) -> None:
    with cluster(open_directory / "reserved", "--role", "gpu") as (stack, client):
        jobs = [submit(client) for _ in range(2)]
        wait_until("both run", lambda: run(client, *jobs), PATIENCE_S)
        assert used(stack) == 1
        with Greedy(stack):
            wait_until("the other card is taken", lambda: greedy_gpus(stack) == 1)
            for _ in range(3):
                old = covers(stack)
                kill_keeper(stack)
                wait_until("another keeper", partial(is_another, stack, old), PATIENCE_S)
                assert greedy_gpus(stack) == 1
            wait_until("it is seen", lambda: shared(client) == ["covered"])
            assert [client.job(job["id"])["launches"] for job in jobs] == [1, 1]
            all_gone(stack, client, *jobs)
            # Nothing stays reserved for us.
            wait_until("the card is everybody's again", lambda: greedy_gpus(stack) == 2, PATIENCE_S)


@pytest.mark.long
def test_shared_card_without_a_reservation_is_shown_uncovered_and_takes_no_more(open_directory: Path) -> None:
    with cluster(open_directory / "open") as (stack, client):
        jobs = [submit(client) for _ in range(2)]
        wait_until("both run", lambda: run(client, *jobs), PATIENCE_S)
        with Greedy(stack):
            wait_until("the other card is taken", lambda: greedy_gpus(stack) == 1)
            wait_until("the other framework has it", partial(is_taken, stack, client), PATIENCE_S)
            wait_until("it is shown", lambda: shared(client) == ["uncovered"])
            late = submit(client)
            assert [client.job(job["id"])["state"] for job in (*jobs, late)] == [
                "running",
                "running",
                "pending",
            ]
            assert client.why(late["id"])["summary"]
        wait_until("it is covered again", lambda: set(shared(client)) == {"covered"}, PATIENCE_S)
        wait_until("the one that waited runs", lambda: run(client, late), PATIENCE_S)
        assert [client.job(job["id"])["launches"] for job in jobs] == [1, 1]
        all_gone(stack, client, *jobs, late)


# --- kill -9

VICTIMS: Final[dict[str, Callable[[Stack], None]]] = {
    "scheduler": kill_scheduler,
    "agent": kill_agent,
    "master": kill_master,
    "monitor": kill_monitor,
    "keeper": kill_keeper,
    "executor": partial(kill_executor, prefix="part-"),
}
#: Seconds that each time of a card's life takes here: a launch, any part of a long one, an end and the linger.
TIMES: Final = {"opening": 0.6, "sharing": 0.2, "closing": 0.3 + 1.2 * LINGER_S}


class Watch:
    """An account of what the master says all the while: GPUs counted that no card stands for, and shares that run on
    a card which no task holds."""

    def __init__(self, stack: Stack) -> None:
        self.twice, self.longest_uncovered_s, self.looks = 0.0, 0.0, 0
        self._stack, self._stop = stack, threading.Event()
        self._uncovered_since: dict[str, float] = {}
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(0.05):
            with suppress(OSError, http.client.HTTPException):  # it is the master that was killed
                self._look(ours(self._stack))

    def _look(self, framework: dict[str, Any]) -> None:
        at = time.monotonic()
        covered = cards_of(framework, "cover", _ALIVE)
        shared_now = set(cards_of(framework, "job", ("TASK_RUNNING",)))
        counted = float(framework.get("used_resources", {}).get("gpus", 0))
        self.twice = max(self.twice, counted - len(set(covered)))
        self.looks += 1
        for card in shared_now - set(covered):
            since = self._uncovered_since.setdefault(card, at)
            self.longest_uncovered_s = max(self.longest_uncovered_s, at - since)
        for card in set(self._uncovered_since) - (shared_now - set(covered)):
            self.longest_uncovered_s = max(self.longest_uncovered_s, at - self._uncovered_since.pop(card))


def cards_of(framework: dict[str, Any], role: str, states: Sequence[str]) -> list[str]:
    """The card of each task of ours that stands for one, or has a share of one."""
    cards = []
    for task in framework.get("tasks", ()):
        labels = {label["key"]: label.get("value", "") for label in task.get("labels", ())}
        if labels.get("mesos_gpu.role") == role and task["state"] in states and "mesos_gpu.gpu" in labels:
            cards.append(labels["mesos_gpu.gpu"])
    return cards


def launched_again(client: Client, jobs: Sequence[Job]) -> int:
    return sum(client.job(job["id"])["launches"] - 1 for job in jobs)


def one_kill(stack: Stack, client: Client, victim: str, when: str, moment: float) -> dict[str, float]:
    """Kill one part while a card is opened, shared or closed.

    Args:
        stack: The cluster.
        client: A client of it.
        victim: Key of `VICTIMS`.
        when: Key of `TIMES`.
        moment: Part of that time that passes before the kill, 0 to 1.

    Returns:
        Jobs that were lost or launched again, GPUs counted twice, and seconds for which no task held the card.
    """
    with Watch(stack) as watch:
        jobs = [submit(client, name="part") for _ in range(2)]
        if when != "opening":
            wait_until("both run", lambda: run(client, *jobs), PATIENCE_S)
        if when == "closing":
            for job in jobs[1:] if victim == "executor" else jobs:
                client.kill(job["id"])
        time.sleep(moment * TIMES[when])  # any moment will do
        held_by = covers(stack) if victim == "keeper" and when == "sharing" else []
        if not (victim == "keeper" and when == "closing" and not executors(stack, "gpu-keeper")):
            VICTIMS[victim](stack)
        lasting = jobs if when != "closing" else []
        if held_by:
            wait_until("another keeper", partial(is_another, stack, held_by), PATIENCE_S)
        if lasting and victim == "executor":
            wait_until("another launch", lambda: launched_again(client, lasting) == 1, PATIENCE_S)
        if lasting:
            wait_until("both run again", lambda: run(client, *lasting), PATIENCE_S)

            def accounted() -> bool:
                states = shared(client)
                return set(states) == {"covered"} and used(stack) == len(states) == len(covers(stack))

            wait_until("their cards are held", accounted, PATIENCE_S)
        again = launched_again(client, lasting)
        all_gone(stack, client, *jobs)
    assert watch.looks > 2, "the master was looked at"
    return {
        "lost": sum(client.job(job["id"])["attempts"] > 1 for job in jobs),
        "twice": watch.twice,
        "again": again,
        "uncovered_s": watch.longest_uncovered_s,
    }


@pytest.fixture(scope="module")
def lived(open_directory: Path) -> Iterator[tuple[Stack, Client]]:
    with cluster(open_directory / "lived", "--role", "gpu") as both:
        yield both


PAIRS: Final = list(zip(VICTIMS, [*TIMES, *TIMES], strict=True))
KILLS: Final = [(*pair, moment) for moment in (0.5, 0.1, 0.9) for pair in PAIRS]
#: The kill of the one component that nothing else of `make test` kills.
GATE: Final = ("keeper", "sharing", 0.5)


@pytest.mark.parametrize(
    ("victim", "when", "moment"),
    [pytest.param(*kill, marks=[] if kill == GATE else [pytest.mark.long]) for kill in KILLS],
)
def test_a_kill_loses_no_share_and_counts_no_card_twice(
    lived: tuple[Stack, Client], victim: str, when: str, moment: float
) -> None:
    came = one_kill(*lived, victim, when, moment)
    assert (came["lost"], came["twice"]) == (0, 0), came
    if when == "sharing" and victim != "executor":
        assert came["again"] == 0, "what ran was left running"


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("role", ["gpu", "*"])
def test_twenty_kills_of_each_part_at_each_time(open_directory: Path, role: str) -> None:
    """By turns, not one part again and again: what dies soon after its start is started more and more slowly."""
    table = {(victim, when): Counter[str]() for when in TIMES for victim in VICTIMS}
    longest_s = dict.fromkeys(table, 0.0)
    with cluster(open_directory / "long", "--role", role) as (stack, client):
        for _ in range(20):
            for cell, row in table.items():
                came = one_kill(stack, client, *cell, random.random())
                longest_s[cell] = max(longest_s[cell], came.pop("uncovered_s"))
                row.update({"kills": 1, **{name: int(count) for name, count in came.items()}})
    for (victim, when), row in table.items():
        said = ", ".join(f"{name} {row[name]}" for name in ("kills", "lost", "twice", "again"))
        print(
            f"{role} {victim:9} {when:7} {said}, uncovered for {longest_s[victim, when] * 1000:.0f} ms at most"
        )
    assert all(row["lost"] == row["twice"] == 0 for row in table.values()), table
