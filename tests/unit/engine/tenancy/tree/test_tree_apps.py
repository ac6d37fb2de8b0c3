"""Instances of apps in a tree of queues: where they wait, and what their queue gives them."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.model.apps.app import App, GpuOptions, Group
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.tenancy import JobClass, QueueSpec
from tests.unit.engine.tenancy.worlds import tree_world

QUEUES = {
    "shop": QueueSpec(default_priority=7),
    "lab": QueueSpec(),
    "lab/x": QueueSpec(),
    "plain": QueueSpec(),
}


def spec_of(app: App, **document: Any) -> JobSpec:
    world = tree_world(QUEUES, settings=None, **document)
    group = app.id.strip("/").partition("/")[0]
    groups = (Group(f"/{group}", (app,)),) if app.id.count("/") > 1 else ()
    world.feed(ev.AppsChanged("d1", Group("/", () if groups else (app,), groups)))
    world.tick(3)
    (job,) = world.state.work.jobs.values()
    return job.spec


WEB = App("/shop/web", cmd="serve", cpus=0.1, mem_mib=32, port_definitions=())


@pytest.mark.parametrize(
    ("app", "queue"),
    [
        (WEB, "shop"),
        (App("/shop", cmd="serve", port_definitions=()), "default"),
        (App("/lab/web", cmd="serve", port_definitions=()), "default"),
        (App("/other/web", cmd="serve", port_definitions=()), "default"),
        (App("/shop/web", cmd="serve", port_definitions=(), labels={"MESOS_GPU_QUEUE": "lab/x"}), "lab/x"),
        (App("/shop/web", cmd="serve", port_definitions=(), gpu=GpuOptions(queue="plain")), "plain"),
    ],
)
def test_instance_waits_in_the_queue_of_its_app_its_label_or_its_group(app: App, queue: str) -> None:
    assert spec_of(app).queue == queue


def test_instance_has_what_its_queue_and_class_give() -> None:
    assert spec_of(WEB).priority == 7
    assert spec_of(replace(WEB, gpu=GpuOptions(priority=0))).priority == 0, "it was asked for"
    app = App("/shop/web", cmd="serve", port_definitions=(), gpu=GpuOptions(job_class="batch"))
    batch = spec_of(app, classes=(JobClass("batch", priority=3, preemptible=True),))
    assert (batch.priority, batch.preemptible) == (3, True)
