"""Counters and timings of the engine's thread, kept with the Prometheus client library."""

import time
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, disable_created_metrics
from prometheus_client.registry import Collector

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.model import saves
from mesos_gpu.model.tasks.task import ENDED
from mesos_gpu.ports import Store

_STEP_S: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_SAVE_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_LAUNCH_S: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_WAIT_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 604800.0)
#: Metric label of each kind of event; all others count as "other", since class names are internal.
_STEPS: Final = {
    ev.Match: "match",
    ev.Tick: "tick",
    ev.OffersArrived: "offers",
    ev.StatusArrived: "status",
    ev.JobSubmitted: "submit",
    ev.KillRequested: "kill",
    ev.AppsChanged: "apps",
    ev.HealthFound: "health",
}
OTHER_STEP: Final = "other"
disable_created_metrics()  # type: ignore[no-untyped-call] # saves one line per series that is not used


class Meter(Collector):
    """Prometheus metrics in a registry of their own. Written on the engine's thread, read on any."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._steps = Histogram(
            "mesos_gpu_engine_step_duration_seconds",
            "Time that the engine takes for an event, by its kind.",
            ["event"],
            registry=registry,
            buckets=_STEP_S,
        )
        self._of_step = {name: self._steps.labels(name) for name in (*_STEPS.values(), OTHER_STEP)}
        self._saves = Histogram(
            "mesos_gpu_store_save_duration_seconds",
            "Time that a batch of changes takes to be on disk.",
            registry=registry,
            buckets=_SAVE_S,
        )
        self.waits = Histogram(
            "mesos_gpu_queue_wait_seconds",
            "Time that jobs waited for a launch: since their submission, or since they came back to the queue.",
            ["queue"],
            registry=registry,
            buckets=_WAIT_S,
        )
        self.launches = Histogram(
            "mesos_gpu_launch_duration_seconds",
            "Time from the launch of a task until its command runs.",
            registry=registry,
            buckets=_LAUNCH_S,
        )
        self.stepped_s = 0.0  # processor time of all steps
        self._count(registry)

    def _count(self, registry: CollectorRegistry) -> None:
        """Create the counters in a registry."""
        self.offers = Counter(
            "mesos_gpu_offers", "Offers of Mesos, by what became of them.", ["outcome"], registry=registry
        )
        self.placements = Counter(
            "mesos_gpu_placements", "Tasks of jobs that were launched.", registry=registry
        )
        self.refusals = Counter(
            "mesos_gpu_refusals",
            "Requests that the engine refused, by reason.",
            ["reason"],
            registry=registry,
        )
        self.preemptions = Counter(
            "mesos_gpu_preemptions",
            "Tasks that the scheduler ended without a request by a user, by reason.",
            ["reason"],
            registry=registry,
        )
        self.ends = Counter(
            "mesos_gpu_task_ends",
            "Tasks of jobs that ended, by their last state.",
            ["state"],
            registry=registry,
        )
        # Create the series now: one that first appears with a count of 1 shows no increase, so alerts would miss it.
        for outcome in ("received", "used", "declined", "rescinded"):
            self.offers.labels(outcome)
        for state in ENDED:
            self.ends.labels(state.value)

    def collect(self) -> Iterable[Metric]:
        """Return all metric families."""
        return self._registry.collect()

    def step(self, state: State, event: ev.Event, now: float, settings: Settings) -> list[fx.Effect]:
        """Step the engine and record the duration."""
        begin, cpu = time.perf_counter(), time.thread_time()
        try:
            return step(state, event, now, settings)
        finally:
            self.stepped_s += time.thread_time() - cpu
            self._of_step[_STEPS.get(type(event), OTHER_STEP)].observe(time.perf_counter() - begin)

    def save(self, store: Store, changes: Iterable[saves.Save]) -> None:
        """Save changes and record the duration."""
        with self._saves.time():
            store.save(changes)
