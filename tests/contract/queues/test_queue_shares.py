"""Shares of queues over REST and at the command line: the worked example of docs/fair-shares.md."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from mesos_gpu.api.metrics.families import FAMILIES, MAX_QUEUES, OTHERS, bounded
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.shares import queue_shares
from mesos_gpu.model.access.caller import NOBODY
from mesos_gpu.model.queue_share import QueueShare
from mesos_gpu.model.tenancy import Guarantee, QueueDocument, QueueSpec
from tests.conftest import wait_until
from tests.contract.access.rig import ROOT
from tests.contract.access.test_access_cli import done, failed
from tests.contract.cli.cli_rig import call
from tests.contract.queues.share_rig import ShareRig
from tests.contract.queues.test_queues_api import ANN, BOSS, code_of
from tests.doubles.builders import World, gpu

PAGE = Path(__file__).parents[3] / "docs" / "fair-shares.md"


def blocks(kind: str) -> list[str]:
    """The fenced blocks of the page of one kind."""
    parts = PAGE.read_text().split("```")[1::2]
    return [part.removeprefix(kind + "\n") for part in parts if part.startswith(kind + "\n")]


@pytest.fixture
def example(rig: ShareRig) -> ShareRig:
    """What the page tells: 32 GPUs, of which production holds 10; all others wait."""
    document = yaml.safe_load(blocks("yaml")[0])
    assert rig.call(ROOT, "PUT", "/v1/queues", json={"version": 0, **document}).ok
    for i in range(4):
        rig.node(f"a{i}", [f"g{i}{j}" for j in range(8)])
    rig.submit("production", gpus=8, cpus=1)
    rig.submit("production", gpus=2, cpus=1)
    for queue, gpus in (("research/vision", 8), ("research/nlp", 8), ("research/nlp", 4), ("students", 20)):
        rig.submit(queue, gpus=gpus, cpus=1000)  # no node has so many processors: they wait
    wait_until("production runs", lambda: share(rig, "production")["held_gpus"] == 10)
    return rig


def share(rig: ShareRig, path: str) -> dict[str, Any]:
    shares = rig.call(ROOT, "GET", "/v1/queue-shares").json()["shares"]
    return next(dict(each) for each in shares if each["path"] == path)


def test_queue_shares_are_empty_without_a_tree(rig: ShareRig) -> None:
    assert rig.call(ROOT, "GET", "/v1/queue-shares").json() == {"shares": []}
    assert code_of(rig.call(ROOT, "GET", "/v1/queue-shares/ml")) == (404, "not-found")
    assert done("queue", "shares", "--json").split() == ["{", '"shares":', "[]", "}"]
    assert "there is no queue ml" in failed(call("queue", "shares", "ml"), 66)


def test_the_example_of_the_page_has_the_numbers_of_the_engine(example: ShareRig) -> None:
    dues = {
        path: share(example, path)["due_gpus"]
        for path in ("production", "research", "students", "research/vision", "research/nlp")
    }
    assert dues == {
        "production": 10,
        "research": 17.333,
        "students": 4.667,
        "research/vision": 8,
        "research/nlp": 9.333,
    }
    nlp = share(example, "research/nlp")
    told = ("given_gpus", "floor_gpus", "rest_gpus", "borrowed_gpus", "weight", "weights", "pending_gpus")
    assert [nlp[name] for name in told] == [17.333, 0, 13.333, 9.333, 1, 2, 12]


def test_queue_shares_command_prints_the_example_of_the_page(
    example: ShareRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed, explained = (block.partition("\n") for block in blocks("console"))
    assert listed[0] == "$ mesos-gpu queue shares"
    assert done("queue", "shares") == listed[2]
    assert explained[0] == "$ mesos-gpu queue shares research/nlp"
    assert done("queue", "shares", "research/nlp") == explained[2]
    assert max(map(len, (listed[2] + explained[2]).splitlines())) <= 100


def test_steps_lead_from_the_top_queue_to_the_one_asked_for(example: ShareRig) -> None:
    told = example.call(ROOT, "GET", "/v1/queue-shares/research/nlp").json()
    assert [step["path"] for step in told["steps"]] == ["research", "research/nlp"]
    assert told["steps"][0]["due_gpus"] == told["steps"][1]["given_gpus"]
    assert [(user["user"], user["rank"], user["held_gpus"]) for user in told["users"]] == [("root", 0, 0)]
    assert code_of(example.call(ROOT, "GET", "/v1/queue-shares/research/none")) == (404, "not-found")


def test_queue_shares_show_own_queues_and_those_above(example: ShareRig) -> None:
    example.bind(BOSS, ANN)
    seen = example.call("ann", "GET", "/v1/queue-shares").json()["shares"]
    assert [each["path"] for each in seen] == ["research", "research/nlp", "research/vision"]
    assert example.call("ann", "GET", "/v1/queue-shares/research/nlp").ok
    assert code_of(example.call("ann", "GET", "/v1/queue-shares/students")) == (403, "forbidden")
    example.caller = NOBODY
    assert code_of(example.call(None, "GET", "/v1/queue-shares/students")) == (401, "unauthenticated")


def test_metrics_name_each_queue(example: ShareRig) -> None:
    lines = example.call(ROOT, "GET", "/metrics", headers={"Accept": "text/plain"}).text.splitlines()
    mine = {name.removeprefix("mesos_gpu_queue_"): float(value) for name, _, value in
            (line.rpartition(" ") for line in lines if line.startswith("mesos_gpu_queue_"))}  # fmt: skip
    wanted = {"guarantee": 8, "share": 17.333, "used": 0, "borrowed": 0, "lent": 0, "idle": 8, "pending": 20}
    assert {name: mine[f'{name}{{queue="research",pool="default"}}'] for name in wanted} == wanted
    assert mine['used{queue="production",pool="default"}'] == 10
    assert not any(name.startswith("limit{") for name in mine), "none has a limit"


def test_labels_of_metrics_are_bounded_and_nothing_is_lost() -> None:
    tops = [made("a", 6), made("b", 6)]
    leaves = [made(f"a/{i:03}", 1, held=i) for i in range(MAX_QUEUES + 7)]
    alone, others = bounded([*tops, *leaves])
    assert [share.path for share in alone][:3] == ["a", "b", "a/000"]
    assert (len(alone), len(others)) == (MAX_QUEUES, 9)
    family = next(family for family in FAMILIES if family.name == "mesos_gpu_queue_used")
    samples = dict(family.samples([*tops, *leaves]))
    assert len(samples) == MAX_QUEUES + 1
    below = sum(number for (queue, _), number in samples.items() if "/" in queue or queue == OTHERS)
    assert round(below * 1000) == sum(share.held for share in leaves)


def made(path: str, guarantee: int, held: int = 0) -> QueueShare:
    return QueueShare(path, "default", guarantee, None, held, 0, 0, 9, 0, 0, 0, 1, 1, 0, 0)


def test_queue_shares_lent_equal_those_borrowed() -> None:
    world = World()
    world.register()
    document = QueueDocument(
        queues={
            name: QueueSpec(guarantee_gpus={"default": Guarantee(guarantee)})
            for name, guarantee in (("a", 4000), ("b", 2000), ("c", 1000))
        }
    )
    world.feed(ev.QueuesChanged(document, 0))
    world.node("a1", *(gpu(f"g{i}") for i in range(8)))
    world.submit("j1", gpus=5, queue="c", preemptible=True)
    shares = {share.path: share for share in queue_shares(world.state, world.settings, world.now)}
    assert {path: share.over for path, share in shares.items()} == {"a": 0, "b": 0, "c": 4000, "default": 0}
    # One GPU is guaranteed to nobody; the other three are of a and b, by what of theirs is idle.
    assert {path: share.lent for path, share in shares.items()} == {
        "a": 2000,
        "b": 1000,
        "c": 0,
        "default": 0,
    }
