"""Choice of the MIG instance for a share: an existing one, or a place where the host can create one. Pure.

Memory and compute of a card in MIG mode are divided in slices; an instance occupies neighbouring memory slices from a
start that its profile allows. Source: NVIDIA's MIG User Guide, "Partitioning", and NVML's placements.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mesos_gpu.model.shares.card import MigInstance, MigProfile, Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.words import whole_of


@dataclass(frozen=True, slots=True)
class Slot:
    """MIG instance for a share, existing or yet to be created.

    Attributes:
        instance: Identifier as in `Share.instance`: a UUID, or PROFILE@START for an instance that the host creates.
        compute_milli: Thousandths of the card's compute that the share gets.
        memory_mib: Memory that the share gets, in MiB.
    """

    instance: str
    compute_milli: int
    memory_mib: int


def slot_for(request: ShareRequest, sharing: Sharing, taken: Collection[str]) -> Slot | str:
    """Return the smallest MIG instance, existing or creatable, that covers a request, or why that is impossible.

    Args:
        request: Share of one card; a process can use only one instance, so a task requests only one card.
        sharing: Abilities of a card in MIG mode.
        taken: Instances of the card's shares, as in `Share.instance`.
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
    """Return profile and start of an instance that the host creates; None for the UUID of an existing one."""
    profile, at, text = instance.rpartition("@")
    start = whole_of(text)
    return None if not at or start is None else (profile, start)


def start_for(profile: MigProfile, profiles: Iterable[MigProfile], occupied: Collection[int]) -> int | None:
    """Return the start for a new instance that leaves most room for large ones; None if there is no place.

    Args:
        profile: Profile of the new instance.
        profiles: Profiles that the card supports.
        occupied: Memory slices that instances occupy.
    """
    largest_first = sorted(profiles, key=lambda other: (-other.width, -other.compute_milli, other.name))

    def left(start: int) -> list[int]:
        """Return in how many places each profile, the largest first, could still be created."""
        then = {*occupied, *range(start, start + profile.width)}
        return [len(_free_starts(other, then)) for other in largest_first]

    return max(_free_starts(profile, occupied), key=left, default=None)


def _free_starts(profile: MigProfile, occupied: Collection[int]) -> list[int]:
    """Return the starts at which an instance of a profile does not overlap occupied slices."""
    return [s for s in profile.starts if not any(n in occupied for n in range(s, s + profile.width))]


def _covers(size: MigInstance | MigProfile, request: ShareRequest) -> bool:
    """Return whether an instance is large enough; fractions are compared in slices of the card, amounts in MiB."""
    if request.memory_mib is None:
        enough = size.memory_milli >= request.memory_milli
    else:
        enough = size.memory_mib >= request.memory_mib
    return enough and size.compute_milli >= request.compute_milli


def _there(request: ShareRequest, sharing: Sharing, taken: Collection[str]) -> list[Slot]:
    """Return existing free instances that cover a request."""
    occupied = _slices_made(sharing, taken)
    return [
        Slot(instance.uuid, instance.compute_milli, instance.memory_mib)
        for instance in sharing.instances
        if instance.uuid not in taken
        and occupied.isdisjoint(_slices(instance))
        and _covers(instance, request)
    ]


def _to_make(request: ShareRequest, sharing: Sharing, taken: Collection[str]) -> list[Slot]:
    """Return instances that the host can create to cover a request."""
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
    """Return the memory slices of the instances that the host created, or is to create, for shares."""
    widths = {profile.name: profile.width for profile in sharing.profiles}
    places = [place for place in map(place_of, taken) if place is not None]
    return {n for name, start in places for n in range(start, start + widths.get(name, 0))}


def _sizes(sharing: Sharing) -> str:
    """Return the size of the largest instance as text."""
    largest = max(_all(sharing), key=lambda size: (size.memory_mib, size.compute_milli))
    name = largest.profile if isinstance(largest, MigInstance) else largest.name
    return f"the largest, {name}, has {largest.memory_mib} MiB and {largest.compute_milli / 10:g} % of the compute"


def _all(sharing: Sharing) -> list[MigInstance | MigProfile]:
    return [*sharing.instances, *sharing.profiles]
