"""All placement policies, once: those that jobs may ask for (`Placement`), and more to compare them with. Pure.

The scheduler's arrays, `mesos-gpu simulate inflation` and `python -m bench placement` choose from here.
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
    """A placement policy.

    Attributes:
        make: A new one, of what gives the mix of recent requests, and of a seed for what is left to chance.
        by_mix: Whether it goes by that mix: it is made anew when another one may be asked for by now.
        apart: Whether nodes with the fewest tasks of the job's app come first.
        fills: Whether GPUs that are open to shares come before another one is opened.
        order: Of several GPUs of a node which come first for shares; None: that which the policy chooses.
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
