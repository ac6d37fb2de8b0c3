"""Large fields of job specifications, such as environments, stored once in the state's file under their digest.

A job is written with each change of its state, while its specification stays the same. The row of a job with large
fields is "@", the digest, and the job without them. A row of `large_fields` is written with the first such job, and
deleted with the last one, in the same transaction. The digest covers the job's owner: jobs of two owners never share a
row, so that no user can learn from the time or size of a save what jobs of others contain.
"""

import sqlite3
import weakref
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from hashlib import sha256
from typing import Any, Final, get_type_hints

import msgspec

from mesos_gpu.adapters.sqlite.seal import SEALS, opened, sealed
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.jobs.job import Job, JobSpec

MIN: Final = 1 << 10  # bytes of JSON; a smaller field stays in the row of its job
TABLE: Final = "large_fields"
_MARK: Final = b"@"  # other bodies are JSON objects, which begin with a brace
_SIZE: Final = 65  # of the mark and the digest
_IS_THERE: Final = "SELECT 1 FROM large_fields WHERE digest = ?"
_READ: Final = "SELECT body FROM large_fields WHERE digest = ?"
_INSERT: Final = f"INSERT INTO large_fields VALUES (?, ?){SEALS}"  # nosec B608 # SEALS is a constant
_JOBS: Final = "SELECT id, substr(body, 1, 65) FROM jobs WHERE substr(body, 1, 1) = x'40'"
_ARRAYS: Final = "SELECT id, substr(body, 1, 65) FROM arrays WHERE substr(body, 1, 1) = x'40'"
#: The conditions on the mark let both subqueries use the partial indexes.
_DELETE_UNUSED: Final = f"""DELETE FROM large_fields WHERE digest = ?
AND NOT EXISTS (SELECT 1 FROM jobs WHERE substr(body, 1, 65) = ? AND substr(body, 1, 1) = x'40')
AND NOT EXISTS (SELECT 1 FROM arrays WHERE substr(body, 1, 65) = ? AND substr(body, 1, 1) = x'40'){SEALS}"""  # nosec B608 # SEALS is a constant

Statement = tuple[str, tuple[Any, ...]]
_Row = tuple[type[object], tuple[Any, ...]]  # kind and key of a row

_HINTS: Final = get_type_hints(JobSpec)
_DEFAULTS: Final[dict[str, Any]] = {
    field_.name: field_.default if field_.default_factory is MISSING else field_.default_factory()
    for field_ in fields(JobSpec)
    if field_.default is not MISSING or field_.default_factory is not MISSING
}
_DECODERS: Final = {name: msgspec.json.Decoder(_HINTS[name]) for name in _DEFAULTS}
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class _Split:
    """A job specification without its large fields.

    Attributes:
        of: The complete specification.
        owner: Authenticated name and Unix user, which are a part of the digest.
        digest: Digest of the owner and the large fields; "" if no field is large.
        rest: The specification with defaults in place of its large fields.
    """

    of: weakref.ref[JobSpec]
    owner: tuple[str, str]
    digest: str
    rest: JobSpec | None


class LargeFields:
    """Large fields in one state file. Only for the thread that writes to it.

    Args:
        db: Connection to the file, which has the table.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        # By the identity of a specification: jobs keep theirs, so that a save neither encodes nor hashes it again.
        self._known: dict[int, _Split] = {}
        large = [(Job, db.execute(_JOBS).fetchall()), (JobArray, db.execute(_ARRAYS).fetchall())]
        # Digests of the rows that have one. A query for each save would take longer.
        self._digests: dict[_Row, str] = {
            (kind, (id,)): bytes(start[len(_MARK) :]).decode() for kind, rows in large for id, start in rows
        }
        self._changed: dict[_Row, str] = {}  # digests of rows that the transaction under way has written

    def change(self, kind: type[object], key: tuple[Any, ...], digest: str) -> str:
        """Record the digest that the row of a job or an array has from now on. Return the previous one.

        Args:
            kind: `Job` or `JobArray`; other kinds have no large fields.
            key: Key of the row.
            digest: New digest; "" if the row has none, or is deleted.
        """
        if kind not in (Job, JobArray):
            return ""
        before = self._changed.get((kind, key))
        if before is None:
            before = self._digests.get((kind, key), "")
        if before != digest:
            self._changed[kind, key] = digest
        return before

    def end(self, *, committed: bool) -> None:
        """Apply, or drop, the recorded digests at the end of a transaction."""
        if committed:
            for row, digest in self._changed.items():
                if digest:
                    self._digests[row] = digest
                else:
                    self._digests.pop(row, None)
        self._changed.clear()

    def body_of(self, value: object) -> tuple[bytes, str]:
        """Return the body of a value's row, and its digest; "" if the value has no large fields."""
        if not isinstance(value, Job | JobArray):
            return msgspec.json.encode(value), ""
        split = self._known.get(id(value.spec))
        if split is None or split.of() is not value.spec or split.owner != _owner(value):
            body = msgspec.json.encode(value)
            if len(body) <= MIN:
                return body, ""
            split = self._split(value)
        if split.rest is None:
            return msgspec.json.encode(value), ""
        rest = msgspec.json.encode(replace(value, spec=split.rest))
        return _MARK + split.digest.encode() + rest, split.digest

    def _split(self, value: Job | JobArray) -> _Split:
        spec, key = value.spec, id(value.spec)
        large = _large_in(spec)
        digest = sha256(_ENCODER.encode((_owner(value), large))).hexdigest() if large else ""
        rest = replace(spec, **{name: _DEFAULTS[name] for name in large}) if large else None

        def forget(of: weakref.ref[JobSpec]) -> None:
            if (cached := self._known.get(key)) is not None and cached.of is of:
                del self._known[key]

        split = self._known[key] = _Split(weakref.ref(spec, forget), _owner(value), digest, rest)
        return split

    def written(self, value: object, digest: str) -> Iterator[Statement]:
        """Yield the statement that writes large fields unless they are stored already. `digest`: "" for none."""
        if digest and self._db.execute(_IS_THERE, (digest,)).fetchone() is None:
            assert isinstance(value, Job | JobArray), "others have no digest"
            body = _ENCODER.encode(_large_in(value.spec))
            yield _INSERT, (digest, sealed(TABLE, (digest,), body))

    def left(self, digest: str, now: str = "") -> Iterator[Statement]:
        """Yield the statement that deletes large fields if no row has their digest any more.

        Args:
            digest: Previous digest of a row; "" if it had none.
            now: Current digest of the row.
        """
        if digest and digest != now:
            mark = _MARK + digest.encode()
            yield _DELETE_UNUSED, (digest, mark, mark)


def decoded(
    db: sqlite3.Connection, decoder: msgspec.json.Decoder[Any], body: bytes, seen: dict[str, dict[str, Any]]
) -> Any:
    """Decode the body of a row, with the large fields that it refers to.

    Args:
        db: Connection to the file of the row.
        decoder: Decoder for the value's type.
        body: Body without its checksum.
        seen: Cache of large fields by digest, which is extended: values with one digest share them.

    Raises:
        sqlite3.DatabaseError: The large fields are missing or damaged.
    """
    if not body.startswith(_MARK):
        return decoder.decode(body)
    value, digest = decoder.decode(body[_SIZE:]), body[len(_MARK) : _SIZE].decode()
    if digest not in seen:
        seen[digest] = _read(db, digest)
    return replace(value, spec=replace(value.spec, **seen[digest]))


def _read(db: sqlite3.Connection, digest: str) -> dict[str, Any]:
    row = db.execute(_READ, (digest,)).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"large fields that a job refers to are not there: {digest!r:.80}")
    raw_fields = _RAW.decode(opened(TABLE, (digest,), row[0]))
    if not raw_fields.keys() <= _DECODERS.keys():
        raise sqlite3.DatabaseError(f"large fields are not of a job: {digest!r:.80}")
    return {name: _DECODERS[name].decode(raw) for name, raw in raw_fields.items()}


def _owner(value: Job | JobArray) -> tuple[str, str]:
    return value.owner, value.spec.user or ""


def _large_in(spec: JobSpec) -> dict[str, Any]:
    return {name: field for name in _DEFAULTS if len(msgspec.json.encode(field := getattr(spec, name))) > MIN}
