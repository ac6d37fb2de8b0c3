"""The page that Prometheus reads, as its own client's parser and its checker take it; and the list of targets."""

import shutil
import subprocess
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mesos_gpu.api.metrics.families import metrics, snapshot
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.testing.builders import gpu
from tests.contract.marathon.test_marathon_api import Marathon

HOSTILE: Final = 'A"1\\0{}0,\tß'
Sample = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture
def rig() -> Iterator[Marathon]:
    rig = Marathon()
    yield rig
    rig.close()


def read(text: str) -> dict[Sample, float]:
    """Every sample of a page, by its name and labels; none is there twice."""
    samples = [
        ((sample.name, frozenset(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(samples) == len(dict(samples))
    return dict(samples)


def value(page: dict[Sample, float], name: str, **labels: str) -> float:
    return page[f"mesos_gpu_{name}", frozenset(labels.items())]


def page_of(rig: Marathon) -> dict[Sample, float]:
    return read(rig.call("GET", "/metrics/prometheus").text)


def test_the_library_s_parser_reads_what_was_measured(rig: Marathon) -> None:
    rig.node("a2", (Gpu(GpuId("GPU-1"), HOSTILE, 1, 1, ""), gpu("g2")))
    rig.submit(gpus=1, queue="q", user="ann")
    measured = rig.daemon.read(snapshot).result(60)
    page = page_of(rig)
    for family in metrics(measured):
        for labels, number in family.samples:
            assert page[family.name, frozenset(labels.items())] == number
    assert value(page, "allocated_gpus", queue="q", user="ann", model="A100") == 1
    assert value(page, "model_gpus", model=HOSTILE, state="out") == 1
    assert value(page, "model_fragmentation_ratio", model=HOSTILE) == 0


def test_requests_are_counted_by_route_and_not_by_path(rig: Marathon) -> None:
    for id in ("none", "nobody"):
        assert rig.call("GET", f"/v1/jobs/{id}").status_code == 404
    assert rig.call("GET", "/no/such/route").status_code == 404
    assert rig.session.request("TRACE", rig.url + "/v1/jobs", timeout=60).status_code == 405
    page = page_of(rig)
    assert value(page, "http_request_duration_seconds_count", method="GET", route="/v1/jobs/{id}") == 2
    assert value(page, "http_request_duration_seconds_count", method="GET", route="none") == 1
    assert value(page, "http_requests_total", method="GET", code="404") == 3
    assert value(page, "http_requests_total", method="other", code="405") == 1


def test_what_the_engine_does_is_counted_and_the_process_is_there(rig: Marathon) -> None:
    rig.node("a2", (gpu("g2"),))
    job = rig.submit(gpus=1, queue="vision")
    rig.status(f"{job['id']}.1", "TASK_RUNNING", "a2")
    page = page_of(rig)
    assert value(page, "placements_total") == 1
    assert value(page, "queue_wait_seconds_count", queue="vision") == 1
    assert value(page, "launch_duration_seconds_count") == 1
    assert value(page, "engine_step_duration_seconds_count", event="match") >= 1
    assert value(page, "store_save_duration_seconds_count") >= 1
    assert page["process_resident_memory_bytes", frozenset()] > 1 << 20
    assert not any(name.endswith("_created") for name, _ in page)


def test_targets_are_the_scheduler_and_each_port_of_what_serves(rig: Marathon) -> None:
    rig.create(
        "/web",
        instances=1,
        labels={"team/name": "a b"},
        portDefinitions=[{"port": 0, "name": "http"}, {"port": 0, "name": "metrics"}],
    )
    alone = rig.call("GET", "/v1/sd").json()
    assert alone == [
        {
            "targets": ["w"],
            "labels": {
                "__meta_mesos_gpu_role": "scheduler",
                "__metrics_path__": "/metrics/prometheus",
                "__scheme__": "http",
            },
        }
    ]
    (task,) = rig.tasks("/web", 1)
    scheduler, http, other = rig.call("GET", "/v1/sd").json()
    assert scheduler == alone[0]
    ports = [urlsplit(f"//{each['targets'][0]}").port for each in (http, other)]
    assert ports == task["ports"]
    assert other["labels"]["__meta_mesos_gpu_port_name"] == "metrics"
    assert other["labels"]["__meta_mesos_gpu_port_index"] == "1"
    assert http["labels"]["__meta_mesos_gpu_app"] == "/web"
    assert http["labels"]["__meta_mesos_gpu_label_team_name"] == "a b"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
def test_promtool_takes_the_page_when_everything_was_counted(rig: Marathon) -> None:
    rig.node("a2", (gpu("g2"),))
    rig.create("/web", instances=1)
    rig.tasks("/web", 1)
    rig.submit(gpus=1)
    text = rig.call("GET", "/metrics/prometheus").text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
