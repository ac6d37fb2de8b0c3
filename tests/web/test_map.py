"""The map of all cards, and what lists of jobs leave out."""

from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.api.kept import Kept
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.nodes.gpu import Health
from tests.conftest import wait_until
from tests.contract.api.test_api_shares import CARD, QUARTER, hold
from tests.contract.rig import Rig, code_of
from tests.doubles.builders import gpu


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def cards(rig: Rig) -> dict[str, Any]:
    answer = rig.call("GET", "/v1/cards")
    assert answer.ok, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(
    ("health", "letter"),
    [
        (Health.SUSPECT, "p"), (Health.SICK, "k"), (Health.LOST, "l"), (Health.DIRTY, "y"), (Health.UNKNOWN, "n"),
    ],
)  # fmt: skip
def test_a_letter_says_how_a_card_stands(rig: Rig, health: Health, letter: str) -> None:
    rig.node(gpus=(gpu("g0"), gpu("g1", health=health)))
    (node,) = cards(rig)["nodes"]
    assert (node["hostname"], node["minors"], node["cards"]) == ("a1.example", [0, 1], f"f{letter}")
    assert (node["lost"], node["drained"], node["held_by"]) == (False, False, [None, None])


def test_a_card_in_use_names_its_job_and_one_that_is_drained_is_still_held(rig: Rig) -> None:
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    job = rig.submit(name="holder", gpus=2)
    wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{job['id']}").json()["task_id"])
    seen = cards(rig)
    assert [node["cards"] for node in seen["nodes"]] == ["uu"]
    assert [node["held_by"] for node in seen["nodes"]] == [[0, 0]]
    assert seen["jobs"] == [{"id": job["id"], "name": "holder", "owner": None}]
    assert rig.call("POST", "/v1/nodes/a1/drain", json={"reason": "fan"}).ok
    (node,) = cards(rig)["nodes"]
    assert (node["cards"], node["drained"]) == ("DD", True)


def test_a_shared_card_has_no_one_holder(rig: Rig) -> None:
    rig.node(gpus=(CARD, gpu("GPU-2")))
    hold(rig, "cover.1", covers=True)
    hold(rig, "a.1", QUARTER)
    seen = cards(rig)
    assert [(node["cards"], node["held_by"]) for node in seen["nodes"]] == [("sf", [None, None])]
    assert seen["jobs"] == []


def test_answer_that_took_long_is_kept_for_requests_soon_after(rig: Rig) -> None:
    clock, made = [10.0], []

    def make(view: View) -> int:
        clock[0] += 0.02
        made.append(len(view.nodes))
        return len(made)

    kept = Kept(make, now=lambda: clock[0])

    def asked_after(seconds: float) -> int:
        clock[0] += seconds
        return rig.daemon.read(kept.of).result(60)

    assert [asked_after(0), asked_after(1.9), asked_after(0.05)] == [1, 1, 1]
    assert [asked_after(0.1), asked_after(0)] == [2, 2]


def test_answer_that_took_no_time_is_made_for_each_request(rig: Rig) -> None:
    made: list[int] = []
    kept = Kept(lambda view: made.append(1), now=lambda: 5.0)
    for _ in range(3):
        rig.daemon.read(kept.of).result(60)
    assert len(made) == 3


def test_answer_that_was_forgotten_is_made_again(rig: Rig) -> None:
    clock, values = iter((0.0, 100.0, 100.1, 100.2, 200.0)), iter("ab")
    kept = Kept(lambda view: next(values), now=lambda: next(clock))
    first = [rig.daemon.read(kept.of).result(60) for _ in range(2)]
    kept.forget()
    assert [*first, rig.daemon.read(kept.of).result(60)] == ["a", "a", "b"]


def test_answer_that_was_begun_before_a_change_is_not_kept(rig: Rig) -> None:
    clock, values = iter((0.0, 100.0, 100.1, 100.2)), iter("ab")

    def make(_view: View) -> str:
        kept.forget()
        return next(values)

    kept = Kept(make, now=lambda: next(clock))
    assert [rig.daemon.read_copy(kept.of).result(60) for _ in range(2)] == ["a", "b"]


def test_answer_is_kept_for_three_seconds_at_most(rig: Rig) -> None:
    clock = iter((0.0, 100.0, 102.9, 103.1, 103.1))
    values = iter("ab")
    kept = Kept(lambda view: next(values), now=lambda: next(clock))
    assert [rig.daemon.read(kept.of).result(60) for _ in range(3)] == ["a", "a", "b"]


def test_jobs_are_searched_for_skipped_and_listed_without_instances(rig: Rig) -> None:
    rig.node(gpus=(gpu("g0"),))
    first, second = rig.submit(name="alpha", gpus=1), rig.submit(name="beta", gpus=1, queue="research")
    wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{first['id']}").json()["task_id"])
    app = {"id": "/web", "cmd": "serve", "instances": 1, "cpus": 0.1, "mem": 32}
    assert rig.call("POST", "/v2/apps", json=app).status_code == 201

    def listed(query: str) -> list[str]:
        return [job["id"] for job in rig.call("GET", f"/v1/jobs?{query}").json()["jobs"]]

    def has_instance() -> bool:
        rig.clock.time += 0.3
        return len(listed("")) == 3

    wait_until("the app has an instance", has_instance)
    assert listed("no_instances=true") == [second["id"], first["id"]]
    assert listed("no_instances=true&skip=1") == [first["id"]]
    assert listed("no_instances=true&skip=2") == []
    assert listed("search=RESEARCH") == [second["id"]]
    assert listed("search=alp") == [first["id"]]
    assert listed(f"search={second['id']}") == [second["id"]]
    assert first["id"] in listed("search=a1.exa"), "by host"
    assert listed("search=nowhere") == []
    assert code_of(rig.call("GET", "/v1/jobs?skip=-1")) == (422, "invalid")
    assert code_of(rig.call("GET", "/v1/jobs?no_instances=yes")) == (422, "invalid")
