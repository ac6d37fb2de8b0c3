"""Two schedulers of one cluster, of which who leads is killed, paused or asked to go, ZooKeeper, which loses requests,
answers and sessions, and upgrades; as acts. Most of them make two of a scheduler that was alone.
"""

from collections.abc import Callable
from typing import Final

from tests.chaos.older import see_read
from tests.chaos.schedulers import Pair
from tests.chaos.world import World


def _pair(world: World) -> Pair:
    if world.pair is None:
        world.flush()  # what is decided is saved before the state is copied
        world.say("a second scheduler stands by")
        world.pair = Pair(world.witness.disk.load())
    return world.pair


def _switch(world: World, a: int, b: int) -> None:
    """Who leads dies before or after a save, or leaves its place when all is done."""
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
    """Who leads is paused where it is, and another elected."""
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
    """ZooKeeper does not hear some of the next writes, or is not heard, and in the end the session may be over."""
    lost, unheard, expires = a % 3, a // 3 % 2, a // 6 % 3 == 0
    ends = ", then the session is over" if expires else ""
    world.say(f"ZooKeeper is away: {lost} writes are lost, {unheard} answers{ends}")
    _pair(world).trouble(["lost"] * lost + ["unheard"] * unheard, expires=expires)


def _older_state(world: World, a: int, b: int) -> None:
    """The next leader is another release, and the state was saved by a program of an earlier schema."""
    world.flush()
    world.say("a newer program reads what an older one saved")
    see_read(world.witness.disk.load())
    world.be_release(b)
    world.restart()


#: name: (how often, what it does)
ACTS: Final[dict[str, tuple[float, Callable[[World, int, int], None]]]] = {
    "switch": (0.0, _switch),
    "pause leader": (0.0, _pause),
    "wake leader": (0.0, lambda world, a, b: world.wake()),
    "zookeeper": (0.0, _zookeeper),
    "older state": (0.0, _older_state),
}
