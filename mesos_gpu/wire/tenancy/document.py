"""JSON of the queue document, checked as a whole with all problems at once; pure functions."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from mesos_gpu.model.jobs.fields import NAME, QUEUE, QUEUE_FORM, Field
from mesos_gpu.model.tenancy import (
    CLASS_FIELDS,
    DEFAULT_POOL,
    HOURS_FIGURES,
    LIMIT_FIELDS,
    NAME_FORM,
    POOL_FIELDS,
    QUEUE_FIELDS,
    Fairness,
    JobClass,
    Limits,
    Pool,
    QueueDocument,
    QueueSpec,
)
from mesos_gpu.wire.checking import Check, Problem, escaped, is_number, is_text, show
from mesos_gpu.wire.kinds import read_fields, write_fields
from mesos_gpu.wire.tenancy import rules
from mesos_gpu.wire.tenancy.kinds import READERS, WRITERS, by_user, limits_at, object_at, written_limits

T = TypeVar("T")
MAX_QUEUES: Final = 5000
MAX_POOLS: Final = 100
MAX_CLASSES: Final = 100
MAX_MODELS: Final = 1000
MAX_COST: Final = 1000
MAX_VERSION: Final = 1 << 53
MAX_BYTES: Final = 1 << 19  # bytes of one stored version
MAX_COMMENT: Final = 1000
#: Fields from `at` on are ignored; they are permitted so that a document that was read can be sent back.
KNOWN: Final = (
    "version", "comment", "queues", "pools", "gpu_cost", "classes", "users", "fairness", "half_life_s",
    "history_percent", "overbook", "at", "by", "reclaim_at", "plan", "warnings", "in_force",
)  # fmt: skip
#: Limits of a queue are beside its other fields in JSON.
SPEC_FIELDS: Final = (*QUEUE_FIELDS, *LIMIT_FIELDS)
_FIGURES: Final = tuple(field for field in QUEUE_FIELDS if field.name in HOURS_FIGURES)


def decode(value: Mapping[str, Any]) -> QueueDocument | list[Problem]:
    """Parse a queue document, with the version that it is based on; return it, or all problems."""
    check = Check(value, KNOWN)
    standard = QueueDocument()
    document = QueueDocument(
        version=check.integer("version", 0, (0, MAX_VERSION)),
        comment=_comment(check),
        queues=_queues(check),
        pools=tuple(_named(check, "pools", MAX_POOLS, _pool)),
        gpu_cost=_costs(check),
        classes=tuple(_named(check, "classes", MAX_CLASSES, _class)),
        users=by_user(check, "users", limits_at) if "users" in check.given else {},
        fairness=check.one_of("fairness", Fairness.GPUS),
        half_life_s=check.integer("half_life_s", standard.half_life_s, (60, 10**9)),
        history_percent=check.integer("history_percent", 0, (0, 1000)),
        overbook=check.flag("overbook"),
    )
    return _whole(check, document)


def _whole(check: Check, document: QueueDocument) -> QueueDocument | list[Problem]:
    problems = [*check.problems, *rules.faults(document)]
    if not problems and (size := len(msgspec.json.encode(document))) > MAX_BYTES:
        problems = [Problem("", f"must have at most {MAX_BYTES} bytes, but has {size}")]
    return problems or document


def encode(document: QueueDocument) -> dict[str, Any]:
    """Return a document in the form that `decode` parses, with all fields."""
    return {
        "version": document.version,
        "at": document.at or None,
        "by": document.by,
        "comment": document.comment,
        "reclaim_at": document.reclaim_at,
        "fairness": document.fairness.value,
        "half_life_s": document.half_life_s,
        "history_percent": document.history_percent,
        "overbook": document.overbook,
        "gpu_cost": dict(document.gpu_cost),
        "pools": {pool.name: write_fields(pool, POOL_FIELDS, WRITERS) for pool in document.pools},
        "classes": {
            job_class.name: write_fields(job_class, CLASS_FIELDS, WRITERS) for job_class in document.classes
        },
        "users": {name: written_limits(limits) for name, limits in document.users.items()},
        "queues": {path: encode_queue(spec) for path, spec in document.queues.items()},
    }


def encode_queue(spec: QueueSpec) -> dict[str, Any]:
    """Return a queue as JSON with all fields; null for inherited or absent values."""
    return {**write_fields(spec, QUEUE_FIELDS, WRITERS), **written_limits(spec.limits)}


def encode_figures(document: QueueDocument, paths: Collection[str]) -> dict[str, Any]:
    """Return the figures of some queues that hours may change, in the form of the document."""
    return {path: write_fields(document.queues[path], _FIGURES, WRITERS) for path in paths}


def place_of(path: str) -> str:
    """Return the JSON pointer of a queue in the document."""
    return f"/queues/{escaped(path)}"


def with_queue(
    document: QueueDocument, path: str, value: Mapping[str, Any], *, is_patch: bool
) -> QueueDocument | list[Problem]:
    """Return a document with a queue replaced by `value`, or all problems, with places in the whole document.

    With `is_patch` absent fields of an existing queue stay unchanged, and null resets a field to its default.
    """
    if is_patch and path in document.queues:
        value = {**encode_queue(document.queues[path]), **value}
    check = Check({}, ())
    place = place_of(path)[1:]
    if not QUEUE.fullmatch(path):
        check.problem(place, f"must be {QUEUE_FORM}")
    spec = _queue(check, place, value) or QueueSpec()
    return _whole(check, replace(document, queues=dict(sorted({**document.queues, path: spec}.items()))))


def without_queue(document: QueueDocument, path: str) -> QueueDocument | list[Problem]:
    """Return a document without a queue, or all problems of the result."""
    left = {other: spec for other, spec in document.queues.items() if other != path}
    return _whole(Check({}, ()), replace(document, queues=left))


def _comment(check: Check) -> str:
    given = check.given.get("comment", "")
    if isinstance(given, str) and len(given) <= MAX_COMMENT and given.isprintable():
        return given
    form = f"one line of at most {MAX_COMMENT} printable characters"
    check.problem("comment", f"must be {form}, got {show(given)}")
    return ""


def _objects(check: Check, key: str, most: int) -> dict[Any, Any]:
    given = check.given.get(key, {})
    if isinstance(given, dict) and len(given) <= most:
        return given
    shown = f"{len(given)}" if isinstance(given, dict) else show(given)
    check.problem(key, f"must be an object of at most {most} entries, got {shown}")
    return {}


def _queues(check: Check) -> dict[str, QueueSpec]:
    queues: dict[str, QueueSpec] = {}
    for path, value in _objects(check, "queues", MAX_QUEUES).items():
        place = f"queues/{escaped(path)}"
        if not isinstance(path, str) or not QUEUE.fullmatch(path):
            check.problem(place, f"must have a path as its name: {QUEUE_FORM}")
        elif (spec := _queue(check, place, {} if value is None else value)) is not None:
            queues[path] = spec
    return dict(sorted(queues.items()))


def _queue(outer: Check, place: str, value: Any) -> QueueSpec | None:
    check = object_at(outer, place, value, SPEC_FIELDS)
    if check is None:
        return QueueSpec()
    spec = QueueSpec(
        **read_fields(check, QUEUE_FIELDS, READERS),
        limits=Limits(**read_fields(check, LIMIT_FIELDS, READERS)),
    )
    outer.take(place, check)
    return spec


def _named(check: Check, key: str, most: int, made_of: Callable[[Check, str, str, Any], T | None]) -> list[T]:
    """Return objects parsed by `made_of`, in the order of their names."""
    items = []
    for name, value in sorted(_objects(check, key, most).items(), key=lambda pair: str(pair[0])):
        place = f"{key}/{escaped(name)}"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            check.problem(place, f"must have a name of {NAME_FORM}")
        elif (item := made_of(check, place, name, {} if value is None else value)) is not None:
            items.append(item)
    return items


def _pool(outer: Check, place: str, name: str, value: Any) -> Pool | None:
    if name == DEFAULT_POOL:
        outer.problem(place, "the pool default has the nodes that match no other pool; choose another name")
    return _declared(outer, place, value, POOL_FIELDS, lambda fields: Pool(name, **fields))


def _class(outer: Check, place: str, name: str, value: Any) -> JobClass | None:
    return _declared(outer, place, value, CLASS_FIELDS, lambda fields: JobClass(name, **fields))


def _declared(
    outer: Check, place: str, value: Any, fields: tuple[Field, ...], made_of: Callable[[dict[str, Any]], T]
) -> T | None:
    check = object_at(outer, place, value, fields)
    if check is None:
        return None
    item = made_of(read_fields(check, fields, READERS))
    outer.take(place, check)
    return item


def _costs(check: Check) -> dict[str, int]:
    costs = {}
    for model, cost in _objects(check, "gpu_cost", MAX_MODELS).items():
        place = f"gpu_cost/{escaped(model)}"
        if not is_text(model) or not model.strip():
            check.problem(place, "must have a GPU model as its name, as A100")
        elif not is_number(cost) or cost != int(cost) or not 1 <= cost <= MAX_COST:
            check.problem(place, f"must be an integer from 1 to {MAX_COST}, got {show(cost)}")
        else:
            costs[model] = int(cost)
    return dict(sorted(costs.items()))
