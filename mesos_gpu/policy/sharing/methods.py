"""Choice of the method that enforces a share on a card, or the reason why it is refused. Pure.

The best method that the host supports and the job accepts is chosen. All shares of one card use one method: MPS with
one user's server, time windows, equal turns and MIG exclude each other on a card.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.model.shares.share import EVERYBODY, Method, Share
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.sharing.mig import slot_for
from mesos_gpu.policy.sharing.parts import GpuPart, unshared

#: Abilities of the host that each method needs, the best first. Time windows need the shim, whatever limits memory.
NEEDS: Final[Mapping[Method, tuple[Ability, ...]]] = MappingProxyType(
    {
        Method.MIG: (Ability.MIG,),
        Method.DMEM_MPS3: (Ability.DMEM, Ability.MPS3),
        Method.MISC_MPS3: (Ability.MISC, Ability.MPS3),
        Method.DMEM_WINDOWS: (Ability.DMEM, Ability.SHIM),
        Method.MISC_WINDOWS: (Ability.MISC, Ability.SHIM),
        Method.SHIM_MPS2: (Ability.SHIM, Ability.MPS2),
        Method.SHIM_WINDOWS: (Ability.SHIM,),
        Method.TURNS: (),
    }
)
_FIRM: Final = ("mig", "dmem", "misc")  # limit memory by hardware, kernel or driver
_BURSTS: Final = ("dmem", "misc")  # have a soft memory limit beside the hard one
_ANY_NUMBER: Final = 1 << 31
_OF_ONE_CARD: Final = (
    "MPS cannot serve a task with shares of several cards: a process can use one server only"
)
_ALL: Final = (
    " (a share of memory alone counts as all of the compute; --gpu-compute-overcommit allows several)"
)
_NOT_AS_ROOT: Final = "MPS cannot serve a task that may be root: it could control the server"


def choose(
    request: ShareRequest,
    gpu: Gpu,
    part: GpuPart | None,
    user: str | None,
    *,
    cards: int = 1,
    compute_milli: int = WHOLE,
) -> Share | str:
    """Return the share that a task gets of a card, or the reason why it gets none, as a predicate about the card.

    Args:
        request: Share that the task requests.
        gpu: The card's GPU.
        part: Free part of the card; None if no share is on it.
        user: User as which the task runs; None if not known, so that it may be root.
        cards: Number of cards on which the task gets equal shares; with more than one, MIG and MPS are out.
        compute_milli: Thousandths of a card's compute that all its shares together may have.
    """
    sharing = gpu.sharing
    if sharing is None:
        return "cannot be shared: its host reports no method to share it"
    memory_mib = request.memory_of(sharing.memory_mib)
    if not 0 < memory_mib <= sharing.memory_mib:
        return f"has {sharing.memory_mib} MiB for shares, and {memory_mib} are asked for"
    short = "" if part is None or sharing.mig else _short(memory_mib, request.compute_milli, part)
    if short:
        return short  # the cheapest test, and the reason for most cards
    domains = _domains(request, user)[0 if sharing.mps_users else -1 :]
    able = _able(request.isolation, sharing, _may_be_root(user), cards)
    if not able:
        return _lacks(request.isolation, sharing, user, cards)
    free = part or unshared(gpu, compute_milli)
    method = next((method for method in able if _agrees(method, free, domains)), None)
    if method is None:
        return _other_method(able, free)
    if method is Method.MIG:
        return _instance(request, sharing, free)
    if not _clients_left(method, sharing, free):
        return f"has no free MPS client: its server accepts {sharing.mps_clients}, and {free.shares} shares use one"
    return _short(memory_mib, request.compute_milli, free) or Share(
        compute_milli=request.compute_milli,
        memory_mib=memory_mib,
        memory_max_mib=most_mib(request, memory_mib, sharing.memory_mib, method),
        method=method,
        domain=(free.domain or domains[0]) if method.has_domain else "",
    )


def times(
    request: ShareRequest,
    gpu: Gpu,
    part: GpuPart | None,
    user: str | None,
    *,
    compute_milli: int = WHOLE,
) -> int:
    """Return how many tasks of one user could get a share of a card, one after the other; arguments as in `choose`."""
    share = choose(request, gpu, part, user, compute_milli=compute_milli)
    free = part or unshared(gpu, compute_milli)
    if isinstance(share, str):
        return 0
    if not share.instance:
        assert gpu.sharing is not None, "a card without sharing gives no share"
        limit = min(free.milli // share.compute_milli, free.memory_mib // share.memory_mib)
        return min(limit, _clients_left(share.method, gpu.sharing, free))
    count = 0
    while isinstance(share, Share):
        count, free = count + 1, free.less(share)
        share = choose(request, gpu, free, user, compute_milli=compute_milli)
    return count


@lru_cache(maxsize=1024)
def _able(isolation: Isolation, sharing: Sharing, may_be_root: bool, cards: int) -> tuple[Method, ...]:
    """Return the methods that the host supports and the job accepts, the best first.

    Cached, as one match tests a thousand cards.
    """
    return tuple([method for method in NEEDS if not _against(method, isolation, sharing, may_be_root, cards)])


def _against(method: Method, isolation: Isolation, sharing: Sharing, may_be_root: bool, cards: int) -> bool:
    """Return whether a host or a job rules a method out."""
    if sharing.mig != (method is Method.MIG) or not _accepts(isolation, method, may_be_root, cards):
        return True
    return any(sharing.lacks(ability) for ability in NEEDS[method])


def _accepts(isolation: Isolation, method: Method, may_be_root: bool, cards: int) -> bool:
    """Return whether a job accepts a method, whatever the host supports."""
    if method is Method.TURNS:
        return isolation is Isolation.ANY
    if isolation is Isolation.STRICT and method.memory_by not in _FIRM:
        return False
    if method is Method.MIG:
        return cards == 1
    return not method.has_domain or not (may_be_root or cards > 1)  # a process speaks to one MPS daemon


def neighbours(request: ShareRequest, user: str | None, cards: int) -> list[tuple[Method, str]]:
    """Return the methods and owners of existing shares beside which a task could get its own on one card.

    The owner is the user of all shares on the card; "" if shares of any user may be there. Abilities of the host are
    ignored, so `choose` may still refuse.

    Args:
        request: Share that the task requests.
        user: User as which the task runs; None if not known, so that it may be root.
        cards: Number of cards on which the task gets equal shares.
    """
    methods = [method for method in NEEDS if _accepts(request.isolation, method, _may_be_root(user), cards)]
    owners = _domains(request, user)
    return [(method, owner) for method in methods for owner in (owners if method.has_domain else ("",))]


def _may_be_root(user: str | None) -> bool:
    return user is None or user in ("", "root", "0")


def _lacks(isolation: Isolation, sharing: Sharing, user: str | None, cards: int) -> str:
    """Describe the abilities that the host would need, each with the reason why it cannot use it."""
    if sharing.mig and cards > 1:
        return "is in MIG mode, in which a task can use one card only"
    methods = [Method.MIG] if sharing.mig else [method for method in NEEDS if method is not Method.MIG]
    if isolation is Isolation.STRICT:
        methods = [method for method in methods if method.memory_by in _FIRM]
    abilities = dict.fromkeys(ability for method in methods for ability in NEEDS[method])
    reasons = [f"{ability.value}: {why}" for ability in abilities if (why := sharing.lacks(ability))]
    if any(not sharing.lacks(ability) for ability in (Ability.MPS3, Ability.MPS2) if ability in abilities):
        reasons += [_NOT_AS_ROOT] * _may_be_root(user) + [_OF_ONE_CARD] * (cards > 1)
    return f"cannot enforce a share with isolation {isolation.value} ({'; '.join(reasons)})"


def _domains(request: ShareRequest, user: str | None) -> tuple[str, ...]:
    """Return the owners of MPS shares beside which the task may run, its own user last."""
    own = user or ""
    return (EVERYBODY, own) if request.across_users else (own,)


def _agrees(method: Method, free: GpuPart, domains: Sequence[str]) -> bool:
    """Return whether the shares already on the card use this method and, with MPS, an owner in `domains`."""
    if free.method is None:
        return True
    return method is free.method and (not method.has_domain or free.domain in domains)


def _other_method(able: Sequence[Method], free: GpuPart) -> str:
    """Describe the method or owner of the shares on the card that excludes a new share."""
    assert free.method is not None, "a card without shares agrees with every method"
    if free.domain == EVERYBODY and free.method in able:
        return "has shares of several users on one MPS server, and accepts only such shares until they end"
    if free.method.has_domain and free.method in able:
        return f"is user {free.domain}'s alone, as long as it has MPS shares"
    names = " or ".join(method.value for method in able)
    return f"has shares enforced by {free.method.value}, and this one needs {names}"


def _clients_left(method: Method, sharing: Sharing, free: GpuPart) -> int:
    """Return how many more clients the card's MPS server accepts; a huge number for methods without a server."""
    limited = method.has_domain and sharing.mps_clients
    return max(sharing.mps_clients - free.shares, 0) if limited else _ANY_NUMBER


def _instance(request: ShareRequest, sharing: Sharing, free: GpuPart) -> Share | str:
    """Return a share in the form of a MIG instance, or the reason why that is impossible."""
    slot = slot_for(request, sharing, free.taken)
    if isinstance(slot, str):
        return f"cannot be used: {slot}"
    return _short(slot.memory_mib, slot.compute_milli, free) or Share(
        compute_milli=slot.compute_milli,
        memory_mib=slot.memory_mib,
        memory_max_mib=slot.memory_mib,
        method=Method.MIG,
        instance=slot.instance,
    )


def _short(memory_mib: int, compute_milli: int, free: GpuPart) -> str:
    """Return the reason if memory or compute does not suffice; "" if both do."""
    if free.memory_mib < memory_mib:
        return f"is full by memory: {max(free.memory_mib, 0)} MiB are free, and {memory_mib} are asked for"
    if free.milli < compute_milli:
        left, need = _percent(max(free.milli, 0)), _percent(compute_milli)
        return f"is full by compute: {left} are free, and {need} are asked for{_ALL if compute_milli == WHOLE else ''}"
    return ""


def _percent(milli: int) -> str:
    return f"{milli / 10:g} %"


def most_mib(request: ShareRequest, memory_mib: int, capacity_mib: int, method: Method) -> int:
    """Return the memory limit of a share in MiB: what it may use while no other share needs the memory.

    Args:
        request: Share that the task requests.
        memory_mib: Guaranteed memory of the share, in MiB.
        capacity_mib: Memory that all shares of the card together may have, in MiB.
        method: Method that enforces the share; only some allow more than the guaranteed memory.
    """
    if request.memory_max_mib is None or request.isolation is Isolation.STRICT:
        return memory_mib
    if method.memory_by not in _BURSTS:
        return memory_mib
    return max(memory_mib, min(request.memory_max_mib, capacity_mib))
