"""Which MIG instance a share gets: one that is there, or where on the card its host makes one. Pure.

Memory and compute of a card in MIG mode are divided in slices; an instance occupies neighbouring memory slices
from a start that its profile allows. Source: NVIDIA's MIG User Guide, "Partitioning", and NVML's placements.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mesos_gpu.model.shares.card import MigInstance, MigProfile, Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.words import whole_of


@dataclass(frozen=True, slots=True)
class Slot:
    """An instance for a share. `instance`: as of `Share`; the rest is what the share has there."""

    instance: str
    compute_milli: int
    memory_mib: int


def slot_for(request: ShareRequest, sharing: Sharing, taken: Collection[str]) -> Slot | str:
    """The smallest instance that covers a request: one that is there, else one that its host makes; or why there is
    none, in words.

    Args:
        request: Of one card; a process can use only one instance, so a task asks for only one card.
        sharing: Of a card whose MIG mode is on.
        taken: Of its shares the instances, as of `Share`.
    """
    if not sharing.instances and not sharing.profiles:
        return "its MIG mode is on, and it has no instances"
    if not any(_covers(size, request) for size in _all(sharing)):
        return f"none of its MIG instances is large enough: {_sizes(sharing)}"
    slots = [*_there(request, sharing, taken), *_to_make(request, sharing, taken)]
    if not slots:
        return "its MIG instances that are large enough are taken"
    return min(slots, key=lambda slot: (slot.memory_mib, slot.compute_milli))


def place_of(instance: str) -> tuple[str, int] | None:
    """Profile and start of an instance that its host makes; None: it is a UUID of one that was there."""
    profile, at, text = instance.rpartition("@")
    start = whole_of(text)
    return None if not at or start is None else (profile, start)


def start_for(profile: MigProfile, profiles: Iterable[MigProfile], occupied: Collection[int]) -> int | None:
    """Where to make an instance so that the largest others can still be made; None: nowhere.

    Args:
        profile: Its profile.
        profiles: All of the card.
        occupied: Memory slices that instances have.
    """
    largest_first = sorted(profiles, key=lambda each: (-each.width, -each.compute_milli, each.name))

    def left(start: int) -> list[int]:
        """For each profile, the largest first, at how many places it can be made then."""
        then = {*occupied, *range(start, start + profile.width)}
        return [len(_free_starts(each, then)) for each in largest_first]

    return max(_free_starts(profile, occupied), key=left, default=None)


def _free_starts(profile: MigProfile, occupied: Collection[int]) -> list[int]:
    return [s for s in profile.starts if not any(n in occupied for n in range(s, s + profile.width))]


def _covers(size: MigInstance | MigProfile, request: ShareRequest) -> bool:
    """Fractions are of the card's slices; an amount is compared with the amount."""
    if request.memory_mib is None:
        enough = size.memory_milli >= request.memory_milli
    else:
        enough = size.memory_mib >= request.memory_mib
    return enough and size.compute_milli >= request.compute_milli


def _there(request: ShareRequest, sharing: Sharing, taken: Collection[str]) -> list[Slot]:
    made = _slices_made(sharing, taken)
    return [
        Slot(each.uuid, each.compute_milli, each.memory_mib)
        for each in sharing.instances
        if each.uuid not in taken and made.isdisjoint(_slices(each)) and _covers(each, request)
    ]


def _to_make(request: ShareRequest, sharing: Sharing, taken: Collection[str]) -> list[Slot]:
    occupied = _slices_made(sharing, taken).union(*map(_slices, sharing.instances))
    slots = []
    for profile in sharing.profiles:
        start = start_for(profile, sharing.profiles, occupied) if _covers(profile, request) else None
        if start is not None:
            slots.append(Slot(f"{profile.name}@{start}", profile.compute_milli, profile.memory_mib))
    return slots


def _slices(instance: MigInstance) -> range:
    return range(instance.start, instance.start + instance.width)


def _slices_made(sharing: Sharing, taken: Collection[str]) -> set[int]:
    """Memory slices of the instances that its host made for shares, or is about to make."""
    widths = {profile.name: profile.width for profile in sharing.profiles}
    places = [place for place in map(place_of, taken) if place is not None]
    return {n for name, start in places for n in range(start, start + widths.get(name, 0))}


def _sizes(sharing: Sharing) -> str:
    largest = max(_all(sharing), key=lambda each: (each.memory_mib, each.compute_milli))
    name = largest.profile if isinstance(largest, MigInstance) else largest.name
    return f"the largest, {name}, has {largest.memory_mib} MiB and {largest.compute_milli / 10:g} % of the compute"


def _all(sharing: Sharing) -> list[MigInstance | MigProfile]:
    return [*sharing.instances, *sharing.profiles]
