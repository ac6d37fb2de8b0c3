"""Lists of all nodes and all cards, page by page."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.reach import pages
from mesos_gpu.cli.reach.answers import decoded
from tests.contract.rig import Rig, code_of
from tests.doubles.builders import gpu

NODES = 5
CARDS = 3  # of each


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    for i in range(NODES):
        rig.node(f"a{i}", tuple(gpu(f"GPU-a{i}-{k}") for k in range(CARDS)))
    assert rig.call("POST", "/v1/nodes/a3/drain", json={"reason": "fan"}).ok
    yield rig
    rig.close()


def listed(rig: Rig, path: str) -> Any:
    answer = rig.call("GET", path)
    assert answer.ok, answer.text
    return answer.json()


def hosts(rig: Rig, query: str) -> list[str]:
    return [node["agent_id"] for node in listed(rig, f"/v1/nodes?{query}")["nodes"]]


def test_pages_of_cards_put_together_are_all_cards(rig: Rig) -> None:
    whole = listed(rig, "/v1/gpus")
    assert whole["total"] == len(whole["gpus"]) == NODES * CARDS
    assert [(each["agent_id"], each["minor"]) for each in whole["gpus"]] == sorted(
        (each["agent_id"], each["minor"]) for each in whole["gpus"]
    )
    parts = [listed(rig, f"/v1/gpus?limit=4&skip={skip}") for skip in range(0, NODES * CARDS, 4)]
    assert {part["total"] for part in parts} == {NODES * CARDS}
    assert [each for part in parts for each in part["gpus"]] == whole["gpus"]
    of_one = listed(rig, "/v1/gpus?node=a1&limit=2&skip=1")
    assert ([each["uuid"] for each in of_one["gpus"]], of_one["total"]) == (["GPU-a1-1", "GPU-a1-2"], CARDS)
    assert listed(rig, "/v1/gpus?skip=100") == {"gpus": [], "total": NODES * CARDS}


def test_nodes_are_searched_ordered_and_cut(rig: Rig) -> None:
    whole = listed(rig, "/v1/nodes")
    assert (len(whole["nodes"]), whole["total"]) == (NODES, NODES)
    assert listed(rig, "/v1/nodes?limit=2&skip=1") == {"nodes": whole["nodes"][1:3], "total": NODES}
    assert listed(rig, "/v1/nodes?search=DRAINED") == {"nodes": whole["nodes"][3:4], "total": 1}
    assert hosts(rig, "descending=true") == ["a4", "a3", "a2", "a1", "a0"]
    assert hosts(rig, "order=state&limit=1") == ["a3"], "drained comes before up"
    assert hosts(rig, "order=tasks&descending=true&search=a0") == ["a0"]


def test_nodes_are_ordered_by_what_is_used() -> None:
    rig = Rig()
    try:
        for i in range(2):
            rig.node(f"b{i}", tuple(gpu(f"GPU-b{i}-{k}") for k in range(CARDS)))
        rig.submit(gpus=2, constraints=[["hostname", "CLUSTER", "b1.example"]])
        used = [node["gpus_used"] for node in listed(rig, "/v1/nodes?order=used&descending=true")["nodes"]]
        assert used == sorted(used, reverse=True)
        assert sum(used) == 2
    finally:
        rig.close()


@pytest.mark.parametrize(
    ("query", "path"),
    [("nodes?order=size", "/order"), ("nodes?limit=0", "/limit"), ("gpus?limit=x", "/limit"),
     ("gpus?skip=-1", "/skip"), ("nodes?descending=1", "/descending")],
)  # fmt: skip
def test_page_parameters_that_are_wrong_are_refused(rig: Rig, query: str, path: str) -> None:
    answer = rig.call("GET", f"/v1/{query}")
    assert code_of(answer) == (422, "invalid")
    assert [each["path"] for each in answer.json()["error"]["problems"]] == [path]


def test_the_command_line_asks_for_page_by_page(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 4)
    with Client(rig.url) as client:
        assert [each["uuid"] for each in client.gpus()] == [
            each["uuid"] for each in listed(rig, "/v1/gpus")["gpus"]
        ]
        assert len(client.nodes()) == NODES
        assert len(client.gpus(["a1", "a2"])) == 2 * CARDS


def test_an_earlier_scheduler_answers_with_all_at_once(rig: Rig) -> None:
    asked = list[dict[str, Any]]()

    def get(path: str, kind: Any, query: dict[str, Any]) -> Any:
        """Answer as one that knows no pages, and does not say how many there are."""
        asked.append(query)
        answer = rig.call("GET", path).json()
        del answer["total"]
        return decoded(json.dumps(answer).encode(), kind.load())

    assert len(pages.every_node(get)) == NODES
    assert len(pages.every_gpu(get, [])) == NODES * CARDS
    assert len(asked) == 2, "nothing is asked for twice"


def test_pages_contain_nothing_twice_when_jobs_come_meanwhile() -> None:
    there = list("bcdef")

    def page(skip: int) -> tuple[list[str], int | None]:
        part, total = there[skip : skip + 2], len(there)
        if not skip:
            there.insert(0, "a")
        return part, total

    assert pages.whole(page, str) == ["b", "c", "d", "e", "f"]
