"""Metrics of webhooks: waiting and failed events, as read from their file when the page is made."""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mesos_gpu.adapters.hooks.store import HookStore
from mesos_gpu.errors import Damaged

logger = logging.getLogger("mesos_gpu.api")
OTHERS: Final = "*"  # label of the sum of URLs that jobs name, as users choose them


class HookFigures(Collector):
    """Collector of webhooks' metrics. It reads a file: not for the event loop.

    Args:
        store: Storage of webhooks, of which there are at most a hundred.
    """

    def __init__(self, store: HookStore) -> None:
        self._store, self._said = store, ""

    def collect(self) -> Iterator[Metric]:
        """Yield the families.

        Each webhook has samples from its start: an increase from no sample to 1 would not be seen.
        """
        readable = GaugeMetricFamily(
            "mesos_gpu_webhooks_readable", "1 while the file of webhooks can be read, else 0."
        )
        names = [hook.name for hook in self._store.latest.hooks]
        try:
            counts = self._store.counts()
        except Damaged as error:
            self._say(error)
            readable.add_metric([], 0)
            yield readable
            return
        readable.add_metric([], 1)
        yield readable
        waiting = {target: number for target, (number, _) in counts.items()}
        dead = {target: number for target, (_, number) in counts.items()}
        yield _filled(
            GaugeMetricFamily(
                "mesos_gpu_webhook_waiting", "Events that wait to be sent to a webhook.", labels=["webhook"]
            ),
            names,
            waiting,
        )
        yield _filled(
            GaugeMetricFamily(
                "mesos_gpu_webhook_dead",
                "Events that could not be delivered to a webhook, and are stored to be sent again.",
                labels=["webhook"],
            ),
            names,
            dead,
        )
        yield _filled(
            CounterMetricFamily(
                "mesos_gpu_webhook_given_up",
                "Events that were given up after all tries, or as too many waited.",
                labels=["webhook"],
            ),
            names,
            self._store.given_up(),
        )

    def _say(self, error: Damaged) -> None:
        """Log an error, unless it equals the previous one."""
        if error.what != self._said:
            self._said = error.what
            logger.error("%s: %s", error.what, error.remedy)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, names: list[str], counts: Mapping[str, int]
) -> Metric:
    """Return the family with a number for each name, and one for the sum of all others."""
    for name in names:
        family.add_metric([name], counts.get(name, 0))
    family.add_metric([OTHERS], sum(counts.values()) - sum(counts.get(name, 0) for name in names))
    return family
