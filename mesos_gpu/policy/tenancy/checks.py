"""What a tree of queues must hold to on the nodes that there are. Pure."""

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
    """A node, as far as queues go: the model of each of its GPUs, and what tells which pool it is in."""

    models: tuple[str, ...]
    attributes: Mapping[str, str]
    hostname: str = ""
    region: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found of a document.

    Attributes:
        faults: What it cannot be taken with: the JSON pointer of the place, and why.
        warnings: What follows from it that somebody may not have meant.
    """

    faults: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def findings(tree: Tree, nodes: Sequence[NodeFacts]) -> Findings:
    """Hold a tree against the nodes. While none is known, nothing of them can be said.

    Args:
        tree: Of the document.
        nodes: All that have GPUs.
    """
    faults = list(_shapes_in_shapes(tree))
    if not nodes:
        return Findings(tuple(faults))
    rooms = _rooms(tree, nodes)
    known = {model for node in nodes for model in node.models}
    faults += [*_unknown_models(tree.document, known), *_unclear_costs(tree.document, known)]
    warnings = []
    for pool in sorted({pool for queue in tree.queues.values() for pool in queue.spec.guarantee_gpus}):
        room = rooms.get(pool, [])
        owed, has = owed_of(tree, pool), sum(room)
        if owed > has and tree.document.overbook:
            warnings.append(
                f"of pool {pool} {_gpus(owed)} are guaranteed and {_gpus(has)} are there: while all of it is asked "
                f"for, {has * 100 // owed} % of each guarantee is kept"
            )
        elif owed > has:
            why = (
                f"guarantee {_gpus(owed)} of pool {pool} together, which has {_gpus(has)}: lower them, or let them be "
                "scaled (overbook: true; mesos-gpu queue apply --overbook)"
            )
            faults.append(("/queues", why))
        elif surely_apart(_shaped(tree, pool), room):
            shown = ", ".join(_gpus(size) for size in sorted(_shaped(tree, pool), reverse=True)[:20])
            why = f"the shapes in pool {pool} do not lie on its nodes together: cells of {shown}"
            faults.append(("/queues", why))
    warnings += _unused_pools(tree, rooms)
    return Findings(tuple(faults), tuple(warnings))


def _unused_pools(tree: Tree, rooms: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Pools that queues wait for in vain, and those that nobody uses."""
    named: dict[str, str] = {}
    for path, queue in sorted(tree.queues.items()):
        for pool in queue.spec.pools or ():
            named.setdefault(pool, path)
    for pool, path in sorted(named.items()):
        if not any(rooms.get(pool, ())):
            yield f"queue {path} uses pool {pool}, and no node with GPUs is in it"
    for each in tree.document.pools:
        if each.dedicated and each.name not in named:
            yield f"pool {each.name} is dedicated, and no queue names it: nobody uses it"


def too_short(document: QueueDocument, report_interval_s: float) -> Iterator[tuple[str, str]]:
    """Where jobs would be warned of idle GPUs before monitors could tell: the place, and why."""
    rules = {f"/queues/{_escaped(path)}": spec.idle for path, spec in document.queues.items()}
    rules |= {f"/classes/{_escaped(each.name)}": each.idle for each in document.classes}
    for place, each in rules.items():
        if each is not None and (why := idle.too_short(each, report_interval_s)):
            yield f"{place}/idle/warn_after_s", why


def owed_of(tree: Tree, pool: str) -> int:
    """What all queues are guaranteed of a pool, thousandths of cost."""
    return sum(_guarantee(tree, path, pool).milli for path in tree.top)


def _rooms(tree: Tree, nodes: Iterable[NodeFacts]) -> dict[str, list[int]]:
    """What each node of each pool has, thousandths of cost."""
    rooms: dict[str, list[int]] = {}
    for node in nodes:
        pool = pool_of(tree.document.pools, set(node.models), node)
        rooms.setdefault(pool, []).append(sum(tree.cost_milli(model, 1000) for model in node.models))
    return rooms


def _unknown_models(document: QueueDocument, known: set[str]) -> Iterator[tuple[str, str]]:
    for name in unknown(document.gpu_cost, known):
        yield f"/gpu_cost/{_escaped(name)}", no_such_model([name], known)
    for pool in document.pools:
        for name in unknown(pool.models, known):
            place = f"/pools/{_escaped(pool.name)}/models/{pool.models.index(name)}"
            yield place, no_such_model([name], known)


def _unclear_costs(document: QueueDocument, known: set[str]) -> Iterator[tuple[str, str]]:
    """Names of `gpu_cost` that mean one card, and of which none says more of it than the others."""
    for model in sorted(known):
        if names := unclear(model, document.gpu_cost):
            why = f"{' and '.join(names)} both mean {model}: leave one out, or name the card in full"
            yield f"/gpu_cost/{_escaped(names[0])}", why


def _shapes_in_shapes(tree: Tree) -> Iterator[tuple[str, str]]:
    """Shapes of queues that cannot be cut out of those of the queue above them."""
    for path, queue in tree.queues.items():
        for pool, own in queue.spec.guarantee_gpus.items():
            below = [size for child in queue.children for size in _cells(tree, child, pool)]
            if own.shapes and surely_apart(below, sizes_of(own)) and sum(below) <= own.milli:
                why = f"the shapes of the queues below it do not lie in its own, of pool {pool}"
                yield f"/queues/{_escaped(path)}/guarantee_gpus", why


def _shaped(tree: Tree, pool: str) -> list[int]:
    """The cells of all shapes, those that are cut out of others left out."""
    return [size for path in tree.top for size in _cells(tree, path, pool)]


def _cells(tree: Tree, path: str, pool: str) -> list[int]:
    """The cells of a queue's shapes; of one whose guarantee is a number, those of the queues below it."""
    own = _guarantee(tree, path, pool)
    if own.shapes:
        return sizes_of(own)
    return [size for child in tree.queues[path].children for size in _cells(tree, child, pool)]


def _guarantee(tree: Tree, path: str, pool: str) -> Guarantee:
    return tree.queues[path].spec.guarantee_gpus.get(pool, _NONE)


def _gpus(milli: int) -> str:
    return f"{milli / 1000:g}"


def _escaped(key: str) -> str:
    """A part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
