"""Guarantees of queues as cells: the parts of nodes in which jobs have their seats. Pure.

A guarantee of shapes has a cell for each of its nodes; a guaranteed number of GPUs is one cell. What a queue is
guaranteed beyond its children makes cells of its own, for the jobs of all of them. Amounts are whole thousandths of
cost.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from mesos_gpu.model.tenancy import ROOT, Guarantee
from mesos_gpu.policy.tenancy.tree import Tree, lineage

#: Sizes of cells, by (path of the queue, pool).
Cells = Mapping[tuple[str, str], tuple[int, ...]]
_NO_GUARANTEE: Final = Guarantee()


def cells_of(tree: Tree, capacity: Mapping[str, int] | None = None) -> Cells:
    """Return the cells (node-sized parts of guarantees) of all queues that have a guarantee.

    Args:
        tree: Tree of queues.
        capacity: Capacity of the nodes by pool; guarantees that exceed it are scaled down. Pools not named, or all if
            None, are not scaled.
    """
    cells: dict[tuple[str, str], tuple[int, ...]] = {}
    for pool in _pools(tree):
        most = None if capacity is None else capacity.get(pool)
        _divide(tree, pool, ROOT, tree.top, most, cells)
    return cells


def owed_in(tree: Tree, pool: str, amount: int) -> Mapping[str, int]:
    """Return the guarantee of each queue with all queues below it in a pool, in thousandths of cost.

    Args:
        tree: Tree of queues.
        pool: Name of the pool.
        amount: Capacity of the pool; guarantees that exceed it are scaled down.
    """
    cells: dict[tuple[str, str], tuple[int, ...]] = {}
    _divide(tree, pool, ROOT, tree.top, amount, cells)
    owed: dict[str, int] = {}
    for (path, _), sizes in cells.items():
        for above in lineage(path):
            owed[above] = owed.get(above, 0) + sum(sizes)
    return owed


@lru_cache(maxsize=4)
def whole_cells(tree: Tree) -> Cells:
    """Return the cells of all queues' guarantees without scaling them to the capacity of the nodes."""
    return cells_of(tree)


def could_hold(cells: Cells, path: str, wants: Iterable[tuple[str, int]], tasks: int) -> bool:
    """Return whether the guarantee of a queue or an ancestor, if unused, has room for all tasks of a job.

    Args:
        cells: Cells of all queues' guarantees.
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
    """Return the pools in which any queue has a guarantee."""
    return sorted({pool for queue in tree.queues.values() for pool in queue.spec.guarantee_gpus})


def _divide(
    tree: Tree,
    pool: str,
    parent: str,
    children: Sequence[str],
    most: int | None,
    made: dict[tuple[str, str], tuple[int, ...]],
) -> list[int]:
    """Give queues and their descendants the cells of their guarantees, scaled down to `most` in total.

    The cells are written to `made`; those of `children` together are returned.
    """
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
    """Return the cells of a queue's guarantee; without one, those of its children."""
    guarantee = tree.queues[path].spec.guarantee_gpus.get(pool, _NO_GUARANTEE)
    if guarantee.milli or guarantee.shapes:
        return sizes_of(guarantee)
    return [size for child in tree.queues[path].children for size in _whole(tree, pool, child)]


def sizes_of(guarantee: Guarantee) -> list[int]:
    """Return the cell sizes of a guarantee: one for each node of its shapes, in proportion to their GPUs."""
    gpus = [shape.gpus for shape in guarantee.shapes for _ in range(shape.nodes)]
    if not gpus:
        return [guarantee.milli] if guarantee.milli else []
    return [guarantee.milli * count // sum(gpus) for count in gpus]


def shrunk(cells: Iterable[int], most: int) -> list[int]:
    """Cut the cells of a guarantee to a total of `most`: the first ones stay whole, one is cut, the others become 0."""
    sizes = []
    for size in cells:
        sizes.append(min(size, most))
        most -= sizes[-1]
    return sizes


def without(cells: Iterable[int], taken: Iterable[int]) -> list[int]:
    """Return the rest of cells after cutting others out, each out of the smallest that holds it, else of
    several."""
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
