"""Registry of placement policies: those that jobs may request (`Placement`), and others for comparison. Pure.

Used by the scheduler's index, `mesos-gpu simulate inflation` and `python -m bench placement`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.jobs.job import Placement
from mesos_gpu.policy.cluster.fragmentation import Fragmentation, Mix
from mesos_gpu.policy.cluster.policies import BestFit, Bundle, Random, Spread
from mesos_gpu.policy.cluster.view import Policy
from mesos_gpu.policy.sharing.cards import Order, emptiest, tightest


@dataclass(frozen=True, slots=True)
class Registered:
    """Registered placement policy.

    Attributes:
        make: Function that creates the policy from a function returning the mix of recent requests, and a random seed.
        by_mix: Whether the policy depends on that mix, and is created again when the mix may have changed.
        apart: Whether nodes with the fewest tasks of the job's app come first.
        fills: Whether GPUs that are open to shares are used before another one is opened.
        order: Order in which GPUs of a node are used for shares; None if the policy chooses.
    """

    make: Callable[[Callable[[], Mix], int], Policy]
    by_mix: bool = False
    apart: bool = False
    fills: bool = False
    order: Order | None = tightest


POLICIES: Final[Mapping[str, Registered]] = {
    Placement.BUNDLE.value: Registered(lambda mix, seed: Bundle(), fills=True),
    Placement.SPREAD.value: Registered(lambda mix, seed: Spread(), apart=True, order=emptiest),
    Placement.FRAGMENTATION.value: Registered(
        lambda mix, seed: Fragmentation(mix()), by_mix=True, order=None
    ),
    "fgd": Registered(
        lambda mix, seed: Fragmentation(mix(), share_of_f=1.0, share_of_worth=0.0, share_of_scarcity=0.0),
        by_mix=True,
        order=None,
    ),
    "bestfit": Registered(lambda mix, seed: BestFit()),
    "random": Registered(lambda mix, seed: Random(seed)),
}
OFFERED: Final = tuple(placement.value for placement in Placement)
assert set(OFFERED) <= POLICIES.keys(), f"no policy is registered for {set(OFFERED) - POLICIES.keys()}"
