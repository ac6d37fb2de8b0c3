"""Descriptions of the hours in force for queues, of their next change, and of the pools that a queue may use."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mesos_gpu.cli import output
from mesos_gpu.policy.tenancy.tree import lineage


def next_change(tree: Mapping[str, Any], path: str) -> float | None:
    """Return when a queue's values change, if that is the next change of all; None if later or never.

    The time is in seconds since the epoch.
    """
    in_force = tree.get("in_force")
    return in_force["until"] if in_force is not None and path in in_force["next"] else None


def next_words(tree: Mapping[str, Any], path: str) -> str | None:
    """Return a description of a queue's values after the next change; None if they do not change then."""
    in_force = tree.get("in_force")
    if in_force is None or path not in in_force["next"]:
        return None
    return _differing(in_force["queues"].get(path, tree["queues"].get(path, {})), in_force["next"][path])


def pools_words(tree: Mapping[str, Any], path: str) -> str | None:
    """Return the pools that a queue may use, in order of use; None for all that are not dedicated."""
    pools = _inherited(tree, path, "pools")
    return ", ".join(pools) if pools else None


def overflow_s(tree: Mapping[str, Any], path: str) -> float | None:
    """Return the seconds that a job waits before it may use the next pool; None if the pools have no order."""
    return (_inherited(tree, path, "overflow_after_s") or 0.0) if _inherited(tree, path, "pools") else None


def remarks(tree: Mapping[str, Any]) -> Sequence[str]:
    """Return lines about the hours in force for a document of queues; empty without hours, or for an old version."""
    in_force = tree.get("in_force")
    return () if in_force is None else tuple(_remarks(tree["queues"], in_force))


def remarks_on(tree: Mapping[str, Any], path: str) -> Sequence[str]:
    """Return lines about the hours in force for a queue and its ancestors; empty without hours."""
    in_force = tree.get("in_force")
    if in_force is None:
        return ()
    own = {name: _of(in_force[name], lineage(path)) for name in ("queues", "next")}
    return tuple(_remarks(tree["queues"], {**in_force, **own})) if any(own.values()) else ()


def _of(figures: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    return {path: figures[path] for path in paths if path in figures}


def _remarks(queues: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    until = known["until"]
    when = "at all times" if until is None else f"until {output.stamp(until)}"
    yield f"In force {when}:"
    for path, figures in sorted(known["queues"].items()):
        yield f"  {path}: {_differing(queues.get(path, {}), figures) or 'as outside its hours'}"
    if until is not None and known["next"]:
        yield "From then on:"
        for path, figures in sorted(known["next"].items()):
            yield f"  {path}: {_differing(known['queues'].get(path, {}), figures)}"


def _inherited(tree: Mapping[str, Any], path: str, field: str) -> Any:
    """Return a field's value of a queue or of its nearest ancestor that has one; None if none has."""
    values = (tree["queues"].get(name, {}).get(field) for name in lineage(path))
    return next((value for value in values if value is not None), None)


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(after[name])}" for name in after if after[name] != before.get(name))


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else json.dumps(value)
