"""What hours make of queues now, until when, and what comes then; and which pools a queue may use: in words."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mesos_gpu.cli import output
from mesos_gpu.policy.tenancy.tree import lineage


def next_change(tree: Mapping[str, Any], path: str) -> float | None:
    """When the figures of a queue are others, if they are the next to change, seconds since the epoch; None: later, or
    never."""
    known = tree.get("in_force")
    return known["until"] if known is not None and path in known["next"] else None


def next_words(tree: Mapping[str, Any], path: str) -> str | None:
    """What the figures of a queue are then, those that change; None: none does."""
    known = tree.get("in_force")
    if known is None or path not in known["next"]:
        return None
    return _differing(known["queues"].get(path, tree["queues"].get(path, {})), known["next"][path])


def pools_words(tree: Mapping[str, Any], path: str) -> str | None:
    """The pools that a queue may use, in the order in which they are tried; None: all that are not dedicated."""
    pools = _inherited(tree, path, "pools")
    return ", ".join(pools) if pools else None


def overflow_s(tree: Mapping[str, Any], path: str) -> float | None:
    """Seconds that a job of a queue waits before it may use the next pool; None: there is no order."""
    return (_inherited(tree, path, "overflow_after_s") or 0.0) if _inherited(tree, path, "pools") else None


def remarks(tree: Mapping[str, Any]) -> Sequence[str]:
    """What is in force of a document of queues, line by line; none: it has no hours, or is not the latest one."""
    known = tree.get("in_force")
    return () if known is None else tuple(_remarks(tree["queues"], known))


def remarks_on(tree: Mapping[str, Any], path: str) -> Sequence[str]:
    """What is in force of a queue and those above it, line by line; none: they have no hours."""
    known = tree.get("in_force")
    if known is None:
        return ()
    own = {name: _of(known[name], lineage(path)) for name in ("queues", "next")}
    return tuple(_remarks(tree["queues"], {**known, **own})) if any(own.values()) else ()


def _of(figures: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    return {path: figures[path] for path in paths if path in figures}


def _remarks(queues: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    until = known["until"]
    when = "at all times" if until is None else f"until {output.stamp(until)}"
    yield f"In force {when}:"
    for path, figures in sorted(known["queues"].items()):
        yield f"  {path}: {_differing(queues.get(path, {}), figures) or 'as outside of its hours'}"
    if until is not None and known["next"]:
        yield "From then on:"
        for path, figures in sorted(known["next"].items()):
            yield f"  {path}: {_differing(known['queues'].get(path, {}), figures)}"


def _inherited(tree: Mapping[str, Any], path: str, field: str) -> Any:
    """What a queue has of a field, or the nearest one above it; None: none has."""
    said = (tree["queues"].get(each, {}).get(field) for each in lineage(path))
    return next((value for value in said if value is not None), None)


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(after[name])}" for name in after if after[name] != before.get(name))


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else json.dumps(value)
