"""Checks of a queue document against the nodes of the cluster. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.model.nodes.gpu_names import no_such_model, unclear, unknown
from mesos_gpu.model.tenancy import Guarantee, QueueDocument
from mesos_gpu.policy.tenancy import idle
from mesos_gpu.policy.tenancy.cells import sizes_of
from mesos_gpu.policy.tenancy.packing import surely_apart
from mesos_gpu.policy.tenancy.pools import pool_of
from mesos_gpu.policy.tenancy.tree import Tree

_NONE: Final = Guarantee()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Node as the checks of queues see it: the model of each GPU, and the properties that decide its pool."""

    models: tuple[str, ...]
    attributes: Mapping[str, str]
    hostname: str = ""
    region: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """Result of checking a document.

    Attributes:
        faults: Errors for which the document is refused: JSON pointer of the place, and the reason.
        warnings: Consequences of the document that may not be intended.
    """

    faults: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def findings(tree: Tree, nodes: Sequence[NodeFacts]) -> Findings:
    """Check a tree of queues against the nodes; without nodes only the document itself is checked.

    Args:
        tree: Tree of the document.
        nodes: Nodes that have GPUs.
    """
    faults = list(_shapes_in_shapes(tree))
    if not nodes:
        return Findings(tuple(faults))
    rooms = _rooms(tree, nodes)
    models = {model for node in nodes for model in node.models}
    faults += [*_unknown_models(tree.document, models), *_unclear_costs(tree.document, models)]
    warnings = []
    for pool in sorted({pool for queue in tree.queues.values() for pool in queue.spec.guarantee_gpus}):
        room = rooms.get(pool, [])
        guaranteed, capacity = owed_of(tree, pool), sum(room)
        if guaranteed > capacity and tree.document.overbook:
            warnings.append(
                f"of pool {pool} {_gpus(guaranteed)} are guaranteed and {_gpus(capacity)} are there: while all of it "
                f"is asked for, {capacity * 100 // guaranteed} % of each guarantee is kept"
            )
        elif guaranteed > capacity:
            why = (
                f"guarantee {_gpus(guaranteed)} of pool {pool} together, which has {_gpus(capacity)}: lower them, or "
                "let them be scaled (overbook: true; mesos-gpu queue apply --overbook)"
            )
            faults.append(("/queues", why))
        elif surely_apart(_shaped(tree, pool), room):
            shown = ", ".join(_gpus(size) for size in sorted(_shaped(tree, pool), reverse=True)[:20])
            why = f"the shapes in pool {pool} do not fit on its nodes together: cells of {shown}"
            faults.append(("/queues", why))
    warnings += _unused_pools(tree, rooms)
    return Findings(tuple(faults), tuple(warnings))


def _unused_pools(tree: Tree, rooms: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Warn of pools without nodes that queues name, and of dedicated pools that no queue names."""
    named: dict[str, str] = {}
    for path, queue in sorted(tree.queues.items()):
        for pool in queue.spec.pools or ():
            named.setdefault(pool, path)
    for pool, path in sorted(named.items()):
        if not any(rooms.get(pool, ())):
            yield f"queue {path} uses pool {pool}, and no node with GPUs is in it"
    for declared in tree.document.pools:
        if declared.dedicated and declared.name not in named:
            yield f"pool {declared.name} is dedicated, and no queue names it: it is unused"


def too_short(document: QueueDocument, report_interval_s: float) -> Iterator[tuple[str, str]]:
    """Yield the idle rules that would warn before the monitors' reports could show idleness: JSON pointer, reason."""
    rules = {f"/queues/{_escaped(path)}": spec.idle for path, spec in document.queues.items()}
    rules |= {f"/classes/{_escaped(job_class.name)}": job_class.idle for job_class in document.classes}
    for place, idle_rules in rules.items():
        if idle_rules is not None and (why := idle.too_short(idle_rules, report_interval_s)):
            yield f"{place}/idle/warn_after_s", why


def owed_of(tree: Tree, pool: str) -> int:
    """Return the sum of the guarantees of all queues in a pool, in thousandths of cost."""
    return sum(_guarantee(tree, path, pool).milli for path in tree.top)


def _rooms(tree: Tree, nodes: Iterable[NodeFacts]) -> dict[str, list[int]]:
    """Return the capacity of each node, in thousandths of cost, by pool."""
    rooms: dict[str, list[int]] = {}
    for node in nodes:
        pool = pool_of(tree.document.pools, set(node.models), node)
        rooms.setdefault(pool, []).append(sum(tree.cost_milli(model, 1000) for model in node.models))
    return rooms


def _unknown_models(document: QueueDocument, known: set[str]) -> Iterator[tuple[str, str]]:
    """Yield model names of the document that match no GPU of the cluster."""
    for name in unknown(document.gpu_cost, known):
        yield f"/gpu_cost/{_escaped(name)}", no_such_model([name], known)
    for pool in document.pools:
        for name in unknown(pool.models, known):
            place = f"/pools/{_escaped(pool.name)}/models/{pool.models.index(name)}"
            yield place, no_such_model([name], known)


def _unclear_costs(document: QueueDocument, known: set[str]) -> Iterator[tuple[str, str]]:
    """Yield entries of `gpu_cost` that match one model equally well, so that its cost is ambiguous."""
    for model in sorted(known):
        if names := unclear(model, document.gpu_cost):
            why = f"{' and '.join(names)} both mean {model}: leave one out, or name the card in full"
            yield f"/gpu_cost/{_escaped(names[0])}", why


def _shapes_in_shapes(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield queues whose children's shapes cannot be cut out of their own."""
    for path, queue in tree.queues.items():
        for pool, own in queue.spec.guarantee_gpus.items():
            below = [size for child in queue.children for size in _cells(tree, child, pool)]
            if own.shapes and surely_apart(below, sizes_of(own)) and sum(below) <= own.milli:
                why = f"the shapes of the queues below it do not fit into its own in pool {pool}"
                yield f"/queues/{_escaped(path)}/guarantee_gpus", why


def _shaped(tree: Tree, pool: str) -> list[int]:
    """Return the cells of all guaranteed shapes, without those that are cut out of a parent's."""
    return [size for path in tree.top for size in _cells(tree, path, pool)]


def _cells(tree: Tree, path: str, pool: str) -> list[int]:
    """Return the cells of a queue's guaranteed shapes; those of its children if its guarantee is a number."""
    own = _guarantee(tree, path, pool)
    if own.shapes:
        return sizes_of(own)
    return [size for child in tree.queues[path].children for size in _cells(tree, child, pool)]


def _guarantee(tree: Tree, path: str, pool: str) -> Guarantee:
    return tree.queues[path].spec.guarantee_gpus.get(pool, _NONE)


def _gpus(milli: int) -> str:
    return f"{milli / 1000:g}"


def _escaped(key: str) -> str:
    """Escape a key for use in a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
