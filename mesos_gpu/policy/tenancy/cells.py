"""What queues are guaranteed, as cells that jobs have their seats in. Pure.

A guarantee of shapes is a cell for each of their nodes; a number of GPUs is one cell. What a queue is guaranteed beyond
what those below it are is cells of its own, for the jobs of all of them. Amounts are whole thousandths of cost.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from mesos_gpu.model.tenancy import ROOT, Guarantee
from mesos_gpu.policy.tenancy.tree import Tree, lineage

#: By the path of a queue and a pool: how large each cell is.
Cells = Mapping[tuple[str, str], tuple[int, ...]]
_NO_GUARANTEE: Final = Guarantee()


def cells_of(tree: Tree, capacity: Mapping[str, int] | None = None) -> Cells:
    """The cells of all queues that have any.

    Args:
        tree: Of queues.
        capacity: By pool, what its nodes have; where guarantees are more, they are scaled. None, and a pool that is not
            in it: nothing is scaled.
    """
    made: dict[tuple[str, str], tuple[int, ...]] = {}
    for pool in _pools(tree):
        most = None if capacity is None else capacity.get(pool)
        _divide(tree, pool, ROOT, tree.top, most, made)
    return made


def owed_in(tree: Tree, pool: str, amount: int) -> Mapping[str, int]:
    """Return by queue what it is guaranteed of a pool, with all queues below it, thousandths of cost.

    Args:
        tree: Tree of queues.
        pool: Name of the pool.
        amount: What the pool has; where guarantees are more, they are scaled.
    """
    made: dict[tuple[str, str], tuple[int, ...]] = {}
    _divide(tree, pool, ROOT, tree.top, amount, made)
    owed: dict[str, int] = {}
    for (path, _), sizes in made.items():
        for above in lineage(path):
            owed[above] = owed.get(above, 0) + sum(sizes)
    return owed


@lru_cache(maxsize=4)
def whole_cells(tree: Tree) -> Cells:
    """The cells of all queues, where nothing is scaled."""
    return cells_of(tree)


def could_hold(cells: Cells, path: str, wants: Iterable[tuple[str, int]], tasks: int) -> bool:
    """Whether the cells of a queue, or of one above it, have room for a job if they are empty.

    Args:
        cells: Of all queues.
        path: Path of the job's queue.
        wants: Amount that each of its tasks takes of a cell, thousandths of cost, by pool.
        tasks: Number of its tasks.
    """
    return any(
        sum(size // max(milli, 1) for size in cells.get((above, pool), ())) >= tasks
        for pool, milli in wants
        for above in lineage(path)
    )


def _pools(tree: Tree) -> list[str]:
    return sorted({pool for queue in tree.queues.values() for pool in queue.spec.guarantee_gpus})


def _divide(
    tree: Tree,
    pool: str,
    parent: str,
    children: Sequence[str],
    most: int | None,
    made: dict[tuple[str, str], tuple[int, ...]],
) -> list[int]:
    """Give each child, and all below it, its cells; `made` takes them. Cells of all children together."""
    own = {child: _whole(tree, pool, child) for child in children}
    total, below = sum(map(sum, own.values())), list[int]()
    for child, cells in own.items():
        if most is not None and total > most:
            cells = shrunk(cells, sum(cells) * most // total)
        beneath = _divide(tree, pool, child, tree.queues[child].children, sum(cells), made)
        left = tuple(size for size in without(cells, beneath) if size)
        if left:
            made[child, pool] = left
        below += cells
    return below


def _whole(tree: Tree, pool: str, path: str) -> list[int]:
    """What a queue is guaranteed; of one that says nothing, what those below it are."""
    guarantee = tree.queues[path].spec.guarantee_gpus.get(pool, _NO_GUARANTEE)
    if guarantee.milli or guarantee.shapes:
        return sizes_of(guarantee)
    return [size for child in tree.queues[path].children for size in _whole(tree, pool, child)]


def sizes_of(guarantee: Guarantee) -> list[int]:
    """The cells of a guarantee: of shapes, one a node, each with its part of what they are together."""
    gpus = [shape.gpus for shape in guarantee.shapes for _ in range(shape.nodes)]
    if not gpus:
        return [guarantee.milli] if guarantee.milli else []
    return [guarantee.milli * count // sum(gpus) for count in gpus]


def shrunk(cells: Iterable[int], most: int) -> list[int]:
    """Keep as many cells as there is room for, the first ones, and of the next what is left."""
    kept = []
    for size in cells:
        kept.append(min(size, most))
        most -= kept[-1]
    return kept


def without(cells: Iterable[int], taken: Iterable[int]) -> list[int]:
    """What is left of cells when others were cut out of them: each of the smallest that holds it, or of several."""
    left = list(cells)
    for size in sorted(taken, reverse=True):
        best = min(
            (i for i, free in enumerate(left) if free >= size), key=lambda i: (left[i], i), default=None
        )
        if best is not None:
            left[best] -= size
            continue
        for i in sorted(range(len(left)), key=lambda i: (-left[i], i)):
            cut = min(left[i], size)
            left[i] -= cut
            size -= cut
    return left
