"""Acts on two schedulers of one cluster, on ZooKeeper, and upgrades.

The leader is killed, paused or stopped; ZooKeeper loses requests, answers and sessions. Most of these acts add a second
scheduler if there is only one.
"""

from collections.abc import Callable
from typing import Final

from tests.chaos.older import see_read
from tests.chaos.schedulers import Pair
from tests.chaos.world import World


def _pair(world: World) -> Pair:
    if world.pair is None:
        world.flush()  # decisions are saved before the state is copied
        world.say("a second scheduler stands by")
        world.pair = Pair(world.witness.disk.load())
    return world.pair


def _switch(world: World, a: int, b: int) -> None:
    """Kill the leader before or after a save, or stop it when all is saved."""
    _pair(world)
    if a % 3 == 2:
        world.say("who leads is asked to go")
        world.flush()
        world.restart()
        return
    crash = ("before", "after")[a % 3]
    world.say(f"who leads is killed {crash} a save")
    world.flush(crash, late=a // 3 % 2 == 1)


def _pause(world: World, a: int, b: int) -> None:
    """Pause the leader, so that the other scheduler is elected."""
    pair = _pair(world)
    if pair.sleeper is not None:
        return
    if a % 3 == 2:
        world.say("who leads is paused")
        world.restart(world.paused([]))
        return
    crash = ("before", "after")[a % 3]
    world.say(f"who leads is paused {crash} a save")
    world.flush(crash, pauses=True, late=a // 3 % 2 == 1)


def _zookeeper(world: World, a: int, b: int) -> None:
    """Let ZooKeeper lose some of the next writes or answers, and perhaps end the session then."""
    lost, unheard, expires = a % 3, a // 3 % 2, a // 6 % 3 == 0
    ends = ", then the session is over" if expires else ""
    world.say(f"ZooKeeper is away: {lost} writes are lost, {unheard} answers{ends}")
    _pair(world).trouble(["lost"] * lost + ["unheard"] * unheard, expires=expires)


def _older_state(world: World, a: int, b: int) -> None:
    """Restart the scheduler as another release, after a check that it reads a state of an earlier schema."""
    world.flush()
    world.say("a newer program reads what an older one saved")
    see_read(world.witness.disk.load())
    world.be_release(b)
    world.restart()


#: Weight and function of each act, by name.
ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], None]]]] = {
    "switch": (0.0, _switch),
    "pause leader": (0.0, _pause),
    "wake leader": (0.0, lambda world, a, b: world.wake()),
    "zookeeper": (0.0, _zookeeper),
    "older state": (0.0, _older_state),
}
