"""Whether another scheduler would take the place of this one, and whether the place where they meet answers."""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mesos_gpu.api.peers import Peers


class PeerFigures(Collector):
    """What was seen last, a second ago or so: nobody waits for ZooKeeper."""

    def __init__(self, peers: Peers) -> None:
        """`peers`: of a scheduler that is one of several."""
        self._peers = peers

    def collect(self) -> Iterator[Metric]:
        """How many stand by is not told while it is not known."""
        standbys = self._peers.standbys
        answers = GaugeMetricFamily(
            "mesos_gpu_zookeeper_answers", "1 while ZooKeeper, where schedulers meet, answers, else 0."
        )
        answers.add_metric([], int(standbys is not None))
        yield answers
        if standbys is not None:
            waiting = GaugeMetricFamily(
                "mesos_gpu_standbys", "Schedulers that stand by, and would lead next."
            )
            waiting.add_metric([], standbys)
            yield waiting
