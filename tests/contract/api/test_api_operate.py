"""GPUs and nodes over the REST interface: how they stand, drains, resets, metrics."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Transition
from tests.contract.rig import Rig, code_of
from tests.doubles.builders import gpu

ONE, TWO = gpu("GPU-1"), replace(gpu("GPU-2"), warnings=("slowed down by heat",))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.node(gpus=(ONE, TWO), isolation="cgroup2")
    yield rig
    rig.close()


def drain(rig: Rig, path: str, **fields: Any) -> dict[str, Any]:
    response = rig.call("POST", f"/v1/{path}/drain", json={"reason": "new fan", **fields})
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_a_card_is_drained_and_given_back(rig: Rig) -> None:
    (card,) = drain(rig, "gpus/GPU-1", by="ann", deadline_s=60)["gpus"]
    assert (card["health"], card["reason"], card["node_health"]) == (
        "drained",
        "drained by ann: new fan",
        "ok",
    )
    now = rig.clock.now()
    assert card["drain"] == {
        "target": "gpu", "name": "GPU-1", "reason": "new fan", "by": "ann", "since": now, "deadline_at": now + 60,
    }  # fmt: skip
    (node,) = rig.call("GET", "/v1/nodes").json()["nodes"]
    assert (node["gpus_total"], node["gpus_sick"], node["gpus_drained"]) == (2, 0, 1)
    status = rig.call("GET", "/v1/status").json()
    assert (status["gpus_sick"], status["gpus_drained"], status["drains"]) == (0, 1, [card["drain"]])
    (card,) = rig.call("DELETE", "/v1/gpus/GPU-1/drain?by=bob").json()["gpus"]
    assert (card["health"], card["drain"]) == ("ok", None)
    history = rig.call("GET", "/v1/gpus/GPU-1").json()["history"]
    assert [(h["old"], h["new"], h["reason"]) for h in history] == [
        ("ok", "drained", "drained by ann: new fan"),
        ("drained", "ok", "undrained by bob"),
    ]
    assert code_of(rig.call("DELETE", "/v1/gpus/GPU-1/drain")) == (404, "not-found")


def test_a_node_is_drained_by_its_name_or_its_agent_s_id(rig: Rig) -> None:
    (node,) = drain(rig, "nodes/a1")["nodes"]
    assert (node["drain"]["name"], node["gpus_drained"]) == ("a1.example", 2)
    assert code_of(rig.call("DELETE", "/v1/gpus/GPU-1/drain")) == (409, "conflict")
    job = rig.submit()
    why = rig.call("GET", f"/v1/why/{job['id']}").json()
    assert why["nodes"][0]["reasons"] == ["is drained: new fan"]
    (node,) = rig.call("DELETE", "/v1/nodes/a1.example/drain").json()["nodes"]
    assert node["drain"] is None


@pytest.mark.parametrize("name", ["GPU-1", "a1.example:1"])
def test_a_card_by_each_of_its_names(rig: Rig, name: str) -> None:
    card = rig.call("GET", f"/v1/gpus/{name}").json()
    assert (card["uuid"], card["history"]) == ("GPU-1", [])


def test_a_start_that_several_have_is_refused(rig: Rig) -> None:
    response = rig.call("POST", "/v1/gpus/GPU/drain", json={"reason": "x"})
    assert code_of(response) == (409, "ambiguous")
    assert "GPU-1, GPU-2" in response.json()["error"]["message"]


REFUSED: list[tuple[str, str, Any, tuple[int, str]]] = [
    ("POST", "/v1/gpus/nope/drain", {"reason": "x"}, (404, "not-found")),
    ("POST", "/v1/gpus/nope/reset", {"reason": "x"}, (404, "not-found")),
    ("GET", "/v1/gpus/nope", None, (404, "not-found")),
    ("POST", "/v1/nodes/nope/drain", {"reason": "x"}, (404, "not-found")),
    ("DELETE", "/v1/nodes/a1/drain", None, (404, "not-found")),
    ("DELETE", "/v1/gpus/GPU-1/drain?by=a%0Ab", None, (422, "invalid")),
    ("PUT", "/v1/gpus/GPU-1/drain", {}, (405, "method")),
    ("POST", "/v1/gpus/GPU-1/drain", [], (400, "bad-json")),
]


def test_card_operation_that_cannot_be_done_is_refused_with_a_remedy(rig: Rig) -> None:
    for verb, path, body, code in REFUSED:
        response = rig.call(verb, path, **({} if body is None else {"json": body}))
        assert (code_of(response), bool(response.json()["error"]["remedy"])) == (code, True), path


def test_drain_refusal_lists_all_problems(rig: Rig) -> None:
    body: dict[str, Any] = {"deadline_s": -1, "by": 7, "x/y": 1}
    problems = rig.call("POST", "/v1/gpus/GPU-1/drain", json=body).json()["error"]["problems"]
    assert {p["path"] for p in problems} == {"/reason", "/deadline_s", "/by", "/x~1y"}
    for body in (
        {"reason": "a\nb"},
        {"reason": " "},
        {"reason": "x" * 501},
        {"reason": "a\0"},
        {"reason": None},
    ):
        assert code_of(rig.call("POST", "/v1/gpus/GPU-1/drain", json=body)) == (422, "invalid")
    body = {"reason": "x", "deadline_s": 5}
    problems = rig.call("POST", "/v1/gpus/GPU-1/reset", json=body).json()["error"]["problems"]
    assert problems[0]["path"] == "/deadline_s", "a reset has no deadline"
    assert rig.call("GET", "/v1/status").json()["drains"] == []


def test_a_reset_is_taken_unless_the_card_is_held(rig: Rig) -> None:
    response = rig.call("POST", "/v1/gpus/GPU-1/reset", json={"reason": "stuck", "by": "ann"})
    card = response.json()
    assert response.status_code == 202
    assert (card["reset"]["reason"], card["health"]) == ("stuck", "drained")
    assert rig.driver.wait_for("message")[0] == "a1"
    assert code_of(rig.call("POST", "/v1/gpus/GPU-1/reset", json={"reason": "x"})) == (409, "conflict")
    done = Transition(1001.0, Health.SICK, Health.OK, f"reset (request {card['reset']['request']})")
    rig.report(replace(ONE, history=(done,)), TWO)
    card = rig.call("GET", "/v1/gpus/GPU-1").json()
    assert (card["reset"], card["health"], card["history"][-1]["reason"]) == (None, "ok", done.reason)
    rig.submit(gpus=2)
    assert code_of(rig.call("POST", "/v1/gpus/GPU-1/reset", json={"reason": "x"})) == (409, "conflict")


def test_the_answers_are_what_the_client_expects(rig: Rig) -> None:
    with Client(rig.url) as client:
        calls = OperatorCalls(client)
        assert calls.drain_gpu("GPU-1", "x", by="me", deadline_s=None)[0]["health"] == "drained"
        assert calls.undrain_gpu("GPU-1", by="me")[0]["health"] == "ok"
        assert calls.drain_node("a1", "x", by="", deadline_s=5.0)[0]["drain"] is not None
        assert calls.undrain_node("a1", by="")[0]["isolation"] == "cgroup2"
        assert calls.reset_gpu("GPU-1", "x", by="me")["reset"] is not None
        card = calls.gpu("GPU-2")
        assert (card["warnings"], card["since"]) == (["slowed down by heat"], None)
        assert [c["reason"] for c in card["history"]] == ["its node is drained: x", "its node is undrained"]
        assert client.status()["isolation_off"] == []
        assert client.nodes()[0]["cuda_version"] == "12.2"


def test_status_names_nodes_with_open_control_ports(rig: Rig) -> None:
    rig.tell(Inventory((ONE, TWO), "simulated", isolation="cgroup2", control_ports="off"), "a1")
    assert rig.call("GET", "/v1/status").json()["control_ports_off"] == ["a1.example"]
    assert rig.call("GET", "/v1/nodes").json()["nodes"][0]["control_ports"] == "off"
    rig.tell(Inventory((ONE, TWO), "simulated", isolation="cgroup2", control_ports="denied"), "a1")
    assert rig.call("GET", "/v1/status").json()["control_ports_off"] == []


def test_status_names_nodes_without_isolation(rig: Rig) -> None:
    rig.report(ONE, TWO, isolation="off")
    assert rig.call("GET", "/v1/status").json()["isolation_off"] == ["a1.example"]
    assert rig.call("GET", "/v1/nodes").json()["nodes"][0]["isolation"] == "off"


def test_the_default_engine_is_the_scheduler_s(rig: Rig) -> None:
    job = rig.submit(image="a/b", on_gpu_failure="notify")
    assert (job["image"], job["container_engine"], job["on_gpu_failure"]) == ("a/b", "mesos", "notify")
    assert rig.submit()["container_engine"] is None


def test_metrics_escape_what_a_card_calls_itself(rig: Rig) -> None:
    hostile = Gpu(GpuId("GPU-1"), 'A"1\\00', 1, 1, "", health=Health.SICK, reason="XID 79", index=1)
    change = Transition(1.0, Health.OK, Health.SICK, "XID 79")
    rig.report(replace(hostile, history=(change,)), TWO)
    rig.submit(gpus=1)
    response = rig.call("GET", "/metrics/prometheus")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.text.splitlines()
    labels = r'uuid="GPU-1",gpu="1",model="A\"1\\00",agent="a1.example"'
    assert f'mesos_gpu_gpu_health{{{labels},state="sick"}} 1' in lines
    assert f'mesos_gpu_gpu_health{{{labels},state="ok"}} 0' in lines
    assert 'mesos_gpu_gpu_health_transitions_total{uuid="GPU-1",to="sick"} 1' in lines
    assert 'mesos_gpu_jobs{state="starting"} 1' in lines
    assert 'mesos_gpu_jobs{state="failed"} 0' in lines
    assert {"mesos_gpu_gpus 2", "mesos_gpu_gpus_used 1"} <= set(lines)
    info = 'agent="a1.example",agent_id="a1",driver="535",cuda="12.2",volume=""'
    assert f"mesos_gpu_node_info{{{info}}} 1" in lines
    sample = re.compile(
        r'[A-Za-z_]+(\{[A-Za-z_]+="(?:[^"\\]|\\.)*"(,[A-Za-z_]+="(?:[^"\\]|\\.)*")*\})? -?[0-9.]+(e[-+]?[0-9]+)?'
    )
    assert [line for line in lines if not line.startswith("#") and not sample.fullmatch(line)] == []
    assert len(lines) == len(set(lines)), "no series twice"


PROMETHEUS = (  # of 2.53
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def test_metrics_are_json_for_clients_of_marathon_and_text_for_prometheus(rig: Rig) -> None:
    rig.node()
    rig.submit(gpus=1)
    for accept in ("application/json", "*/*"):
        families = rig.call("GET", "/metrics", headers={"Accept": accept}).json()
        assert families["gauges"]["mesos_gpu_gpus_used"] == {"value": 1}
        assert families["gauges"]["marathon.apps.active.gauge"] == {"value": 0}
        assert all(
            re.fullmatch(r"[A-Za-z_.0-9-]+", name)
            for kind in ("gauges", "counters")
            for name in families[kind]
        )
        assert all(set(each) == {"count"} for each in families["counters"].values())
        assert set(families) == {"version", "gauges", "counters", "histograms", "meters", "timers"}
    for path, accept in (
        ("/metrics", PROMETHEUS),
        ("/metrics", "text/plain"),
        ("/metrics/prometheus", "*/*"),
    ):
        text = rig.call("GET", path, headers={"Accept": accept})
        assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'mesos_gpu_jobs{state="starting"} 1' in text.text
