"""The page that Prometheus reads, as its own client's parser and its checker take it; and the list of targets."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mesos_gpu.api.metrics.families import FAMILIES, metrics, snapshot
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import round_of
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, TaskUse, Work
from mesos_gpu.model.shares.card import Ability, MigInstance, Sharing
from mesos_gpu.wire.export.prometheus import Metric, render
from tests.contract.marathon.test_marathon_api import Marathon
from tests.doubles.builders import gpu

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


def test_metrics_count_the_engine_s_work_and_show_the_process(rig: Marathon) -> None:
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


METERS: Final = Meters(
    gpu_pct=37,
    power_mw=250_500,
    temperature_c=61,
    energy_mj=123_456_789_012,
    memory_used_mib=0,
    nvlink_tx_kib=5,
)


def test_cards_have_the_names_of_dcgm_and_exactly_what_was_reported(rig: Marathon) -> None:
    rig.node("a2", (gpu("g2"), gpu("g3")))
    job = rig.submit(gpus=1, queue="vision", user="ann")
    (task,) = rig.daemon.read(lambda view: round_of(view, view.jobs[job["id"]])).result(60)
    work = Work(5.0, seen_ms=4000, busy_ms=1500)
    held = task.gpus[0]
    uses = (GpuUse(held, 9.0, METERS, work, processes=2, xid=31),)
    of_task = (TaskUse(task.id, held, 9.0, 2, 4096, work, idle_since=7.0),)
    known = Inventory((gpu("g2"), gpu("g3")), "nvml", "535.1", gpu_uses=uses, task_uses=of_task)
    rig.tell(known, "a2")
    page = page_of(rig)
    # The client's parser gives each counter the end that it should have.
    where = {
        "gpu": held[1:],
        "UUID": held,
        "pci_bus_id": "0000:01:00.0",
        "device": f"nvidia{held[1:]}",
        "modelName": "A100",
        "Hostname": "a2.example",
        "DCGM_FI_DRIVER_VERSION": "535.1",
    }
    card = frozenset(where.items())
    said = {name: number for (name, labels), number in page.items() if labels == card}
    assert said == {
        "DCGM_FI_DEV_FB_TOTAL": 81920,
        "DCGM_FI_DEV_FB_USED": 0,
        "DCGM_FI_DEV_GPU_UTIL": 37,
        "DCGM_FI_DEV_POWER_USAGE": 250.5,
        "DCGM_FI_DEV_GPU_TEMP": 61,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total": 123_456_789_012,
        "DCGM_FI_DEV_XID_ERRORS": 31,
    }, "what is unknown has no sample, and half of what NVLink carries is not all of it"
    own = frozenset({("model", "A100"), *(pair for pair in where.items() if pair[0] != "modelName")})
    assert {name: number for (name, labels), number in page.items() if labels == own} == {
        "mesos_gpu_gpu_busy_seconds_total": 1.5,
        "mesos_gpu_gpu_seen_seconds_total": 4,
        "mesos_gpu_gpu_processes": 2,
    }
    whose = {"task": task.id, "job": job["id"], "queue": "vision", "user": "ann", "app": "", "UUID": held}
    assert value(page, "task_gpus", **whose) == 1
    assert value(page, "task_used_memory_mib", task=task.id, UUID=held) == 4096
    assert value(page, "task_idle_since_timestamp_seconds", task=task.id, UUID=held) == 7
    rig.daemon.put(ev.AgentLost(AgentId("a2")))
    assert not any(name == "DCGM_FI_DEV_GPU_TEMP" for name, _ in page_of(rig)), "what is lost tells nothing"


def test_an_instance_in_mig_mode_has_dcgm_s_labels_and_who_holds_it(rig: Marathon) -> None:
    made = MigInstance("MIG-1", "3g.40gb", 40448, 60, 2, 0, 428, 500, 0, 4)
    free = MigInstance("MIG-2", "1g.10gb", 9984, 16, 13, 0, 142, 125, 6, 1)
    sharing = Sharing(81559, ((Ability.MIG, ""),), mig=True, instances=(made, free))
    card = replace(gpu("g2"), memory_mib=81559, sharing=sharing)
    rig.node("a2", (card,))
    rig.tell(Inventory((card,), "nvml", "535.1"), "a2")
    job = rig.submit(gpus=0.4, gpu_memory_mib=30000, isolation="strict")
    (task,) = rig.daemon.read(lambda view: round_of(view, view.jobs[job["id"]])).result(60)
    page = page_of(rig)
    where = {"gpu": "2", "UUID": "g2", "Hostname": "a2.example"}
    assert {
        tuple(sorted(labels)): number
        for (name, labels), number in page.items()
        if name.endswith("mig_instance_memory_mib")
    } == {
        tuple(
            sorted({**where, "GPU_I_PROFILE": each.profile, "GPU_I_ID": id, "instance": each.uuid}.items())
        ): each.memory_mib
        for each, id in ((made, "2"), (free, "13"))
    }
    assert value(page, "task_mig_instance", task=task.id, UUID="g2", instance="MIG-1") == 1


def test_jobs_that_wait_are_counted_by_reason(rig: Marathon) -> None:
    assert not any(name == "mesos_gpu_waiting_jobs" for name, _ in page_of(rig)), "none waits"
    rig.node("a2", (gpu("g2"),))
    running = rig.submit(gpus=1)
    rig.submit(gpus=1)
    rig.submit(gpus=9)
    assert value(page_of(rig), "waiting_jobs", reason="room") == 2
    rig.status(f"{running['id']}.1", "TASK_LOST", "a2")
    page = page_of(rig)
    assert [value(page, "waiting_jobs", reason=reason) for reason in ("room", "back-off")] == [2, 1]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
def test_promtool_likes_each_of_our_names_whether_there_are_samples_or_not() -> None:
    made = [
        Metric(each.name, each.kind, each.help, each.labels, [(("x",) * len(each.labels), 1.0)])
        for each in FAMILIES
    ]
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=render(made), text=True, capture_output=True, timeout=60
    )
    assert [
        line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("DCGM_FI_")
    ] == []


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
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("DCGM_FI_DEV_")]
    assert (complaints, done.stdout) == ([], "")
    about_names = {line.split(" ", 1)[1] for line in done.stderr.splitlines()}
    assert about_names <= {
        "label names should be written in 'snake_case' not 'camelCase'",
        'counter metrics should have "_total" suffix',
    }, "as NVIDIA's exporter has them, and nothing else"
