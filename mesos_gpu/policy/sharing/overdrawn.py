"""Consistency check of the shares of one card. Pure."""

from collections.abc import Sequence

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Share


def overdrawn(gpu: GpuId, sharing: Sharing | None, shares: Sequence[Share]) -> list[str]:
    """Return descriptions of contradictions between a card's shares and the card; empty if there are none.

    Args:
        gpu: Identifier of the card.
        sharing: Abilities of the card; None if its host does not report any.
        shares: Shares that are granted of the card.
    """
    problems = []
    memory_mib = sum(share.memory_mib for share in shares)
    if sharing is not None and memory_mib > sharing.memory_mib:
        problems.append(f"{gpu} has {sharing.memory_mib} MiB for shares, and {memory_mib} are granted")
    methods, domains = {share.method for share in shares}, {share.domain for share in shares}
    if len(methods) > 1:
        problems.append(
            f"the shares of {gpu} are enforced in several ways: {sorted(m.value for m in methods)}"
        )
    if len(domains) > 1:
        problems.append(f"the shares of {gpu} are of several users: {sorted(domains)}")
    instances = [share.instance for share in shares if share.instance]
    if len(set(instances)) < len(instances):
        problems.append(f"an instance of {gpu} is granted twice: {instances}")
    return problems
