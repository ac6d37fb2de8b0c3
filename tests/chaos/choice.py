"""The choice of the object of an act."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.chaos.world import World

T = TypeVar("T")


def choose(world: World, items: Sequence[T], number: int, name: Callable[[T], str]) -> T | None:
    """Return the object of the present act, and record its name; None without any object."""
    if world.target is not None:
        return next((item for item in items if name(item) == world.target), None)
    if not items:
        return None
    item = items[number % len(items)]
    world.chosen.append(name(item))
    return item
