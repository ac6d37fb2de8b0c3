"""Metrics of high availability: standby schedulers, and whether ZooKeeper answers."""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mesos_gpu.api.peers import Peers


class PeerFigures(Collector):
    """Collector of the latest known state, about a second old: it does not wait for ZooKeeper.

    Args:
        peers: Knowledge of the other schedulers.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def collect(self) -> Iterator[Metric]:
        """Yield the families. The number of standby schedulers has no sample while it is not known."""
        standbys = self._peers.standbys
        answers = GaugeMetricFamily(
            "mesos_gpu_zookeeper_answers", "1 while ZooKeeper, where schedulers meet, answers, else 0."
        )
        answers.add_metric([], int(standbys is not None))
        yield answers
        if standbys is not None:
            waiting = GaugeMetricFamily(
                "mesos_gpu_standbys", "Standby schedulers, one of which would lead next."
            )
            waiting.add_metric([], standbys)
            yield waiting
