"""Metrics under Marathon 1.11's names, as its exporters and dashboards read them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.registry import Collector

from mesos_gpu.engine.reading.apps import instances_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.apps.app import Group
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.wire.export.prometheus import Metric

Counts = Mapping[str, int]
#: Counters of the scheduler: name and outcome of the sample, Marathon's name, and help text.
_COUNTED: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("mesos_gpu_offers_total", "received", "marathon.mesos.offers.incoming.counter", "Offers received."),
    ("mesos_gpu_offers_total", "declined", "marathon.mesos.offers.declined.counter", "Offers declined."),
    ("mesos_gpu_offers_total", "used", "marathon.mesos.offers.used.counter", "Offers used."),
    ("mesos_gpu_placements_total", "", "marathon.tasks.launched.counter", "Tasks launched."),
)
_GAUGES: Final[Mapping[str, tuple[str, Callable[[View], int]]]] = {
    "marathon.apps.active.gauge": ("Apps.", lambda view: len(view.catalog.versions)),
    "marathon.deployments.active.gauge": ("Deployments in progress.", lambda view: len(view.deployments)),
    "marathon.groups.active.gauge": ("Groups, the root included.", lambda view: _groups(view.catalog.root)),
    "marathon.instances.running.gauge": (
        "Instances that run.",
        lambda view: _instances(view, JobState.RUNNING),
    ),
    "marathon.instances.staged.gauge": (
        "Instances that were launched and do not run yet.",
        lambda view: _instances(view, JobState.STARTING),
    ),
    "marathon.instances.inflight-kills.gauge": (
        "Instances that were killed and have not ended.",
        lambda view: _instances(view, JobState.KILLING),
    ),
    "marathon.pods.active.gauge": ("Pods, which are not supported.", lambda _: 0),
}


def counts(view: View) -> Counts:
    """Return the gauges of the state, by name."""
    return {name: measure(view) for name, (_, measure) in _GAUGES.items()}


def metrics(counted: Counts, meter: Collector, uptime_s: float) -> Iterator[Metric]:
    """Yield all families; none has labels.

    Args:
        counted: Gauges as `counts` returns them.
        meter: The scheduler's counters.
        uptime_s: Seconds since the scheduler serves.
    """
    for name, number in counted.items():
        yield _single(name, "gauge", _GAUGES[name][0], number)
    yield _single("marathon.uptime.gauge.seconds", "gauge", "Time since the scheduler serves.", uptime_s)
    samples = {
        (sample.name, sample.labels.get("outcome", "")): sample.value
        for family in meter.collect()
        for sample in family.samples
    }
    for sample, outcome, name, about in _COUNTED:
        yield _single(name, "counter", about, samples[sample, outcome])


def _single(name: str, kind: str, about: str, number: float) -> Metric:
    return Metric(name, kind, about, (), [((), number)])


def _groups(group: Group) -> int:
    return 1 + sum(map(_groups, group.groups))


def _instances(view: View, state: JobState) -> int:
    """Return the number of instances of all apps in a state."""
    ids = view.catalog.versions
    return sum(job.state is state for id in ids for job in instances_of(view, id))
