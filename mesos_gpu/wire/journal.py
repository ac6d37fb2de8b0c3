"""Format of the scheduler's journal files: one JSON document per line, the first of which is the head of the file.

The state that a journal file begins with is a JSON document in a separate file beside it.

The engine's types are passed in by callers. Numbers are restored exactly, as JSON has the shortest decimal that parses
to the same float.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from math import isinf
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from mesos_gpu.errors import Damaged
from mesos_gpu.model.resources import Resources

T = TypeVar("T")
FORMAT: Final = 2
PATTERN: Final = "journal-*.jsonl"  # names of files
_STATE_INSIDE: Final = 1  # format whose heads contain the state
_REMEDY: Final = "replay it with the version of mesos_gpu that wrote it, or leave this file out"


_BESIDE_IT: Final = msgspec.Raw(b"null")  # value in a head whose state is in the file beside


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event, as {name: fields}, with the engine's decisions."""

    event: msgspec.Raw
    decided: list[str] = []  # calls to Mesos, as text
    digest: str = ""  # digest of all effects including saves; "" without effects
    refused: str = ""  # reason why the engine refused the request; "" if it did not
    failed: str = ""  # error by which the engine failed on the event


class Batch(msgspec.Struct, frozen=True):
    """Steps that were executed together. `seq`: number of the first step, counted from 1 over all files of a
    journal."""

    seq: int
    at: float  # seconds since the epoch
    steps: list[Step]


class Head(msgspec.Struct, frozen=True):
    """First line of a file: everything that its steps depend on. `seq`: number of the next step."""

    journal: int  # version of the format
    program: str  # version of mesos_gpu
    seq: int
    follows: bool  # whether this file continues the one before; False if a scheduler has just started
    settings: msgspec.Raw
    state: msgspec.Raw = _BESIDE_IT

    @property
    def has_state(self) -> bool:
        """Whether the head contains the state; else the state is in the file beside it."""
        return self.state != _BESIDE_IT


class Beside(msgspec.Struct, frozen=True):
    """The state that a journal file begins with. `seq`: number of the next step, equal to that in the file's head."""

    seq: int
    state: msgspec.Raw


def _plain(value: Any) -> list[float]:
    """Return resources as a list of amounts, so that journals with fewer kinds of amounts can be read."""
    if isinstance(value, Resources):
        return list(value)
    raise NotImplementedError(f"a {type(value).__name__} has no form in the journal")


def _made(kind: type[Any], value: Any) -> Any:
    """Parse what `_plain` has written."""
    if kind is Resources:
        return Resources.of(value)
    raise NotImplementedError(f"a {kind.__name__} has no form in the journal")


class Named(Generic[T]):
    """Codec for dataclasses of several types, written as {name of the type: fields}.

    Args:
        kinds: Types that may occur.
    """

    def __init__(self, kinds: Iterable[type[T]]) -> None:
        self._decoders = {kind.__name__: msgspec.json.Decoder(kind, dec_hook=_made) for kind in kinds}

    def decode(self, raw: msgspec.Raw) -> T:
        """Decode a value by the name of its type.

        Raises:
            Damaged: The value has none of these types, or lacks a field.
        """
        try:
            ((name, body),) = _NAMED.decode(raw).items()
            return self._decoders[name].decode(body)
        except (msgspec.DecodeError, ValueError, KeyError, RecursionError) as error:
            raise Damaged(f"a line of the journal cannot be read: {error!r}", remedy=_REMEDY) from error


def state_name(name: str) -> str:
    """Return the name of the state file beside a journal file."""
    return f"state-{name.removesuffix('.jsonl').rpartition('-')[2]}.json"


Copied = dict[str, Any]  # fields of a dataclass by their names in JSON


def _copier(hint: Any) -> Callable[[Any], Any] | None:
    """Return a function that copies values of a type, so deep that changes in place do not affect the copy.

    None if values of the type are immutable; a frozen dataclass counts as immutable including its fields.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is dict:
        of_value = _copier(inner[1])
        return (
            dict if of_value is None else lambda value: {key: of_value(item) for key, item in value.items()}
        )
    if origin in (list, set, deque):
        of_item = _copier(inner[0])
        return origin if of_item is None else lambda value: origin(map(of_item, value))
    if isinstance(hint, type) and is_dataclass(hint) and not hint.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return _copier_of_fields(hint)
    mutable = [copier_of_part for copier_of_part in map(_copier, inner) if copier_of_part is not None]
    if not mutable:
        return None
    (of_one,) = mutable  # X | None
    return lambda value: None if value is None else of_one(value)


def _copier_of_fields(kind: type[Any]) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    copiers = {
        field.name: of_field for field in fields(kind) if (of_field := _copier(hints[field.name])) is not None
    }

    def copied(value: Any) -> Any:
        duplicate = copy.copy(value)
        for name, copier in copiers.items():
            setattr(duplicate, name, copier(getattr(value, name)))
        return duplicate

    return copied


def _kept(kind: type[Any], part: str = "") -> Iterator[tuple[str, Field[Any], Any]]:
    """Yield each stored field of a dataclass, with the name of its part ("" for none) and its type."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        if field.metadata.get("part"):
            yield from _kept(hints[field.name], field.name)
        elif not field.metadata.get("derived"):
            yield part, field, hints[field.name]


class Exact(Generic[T]):
    """Codec for a dataclass. Dicts are written as lists of pairs, to keep their order and allow any keys.

    Fields of its parts are members of the JSON object that has its own fields.

    Args:
        kind: The dataclass; values are constructed by field names. Metadata "journal" of a field is its name in JSON.
    """

    def __init__(self, kind: type[T]) -> None:
        assert is_dataclass(kind)
        self._kind, self._kinds = kind, get_type_hints(kind)
        kept = list(_kept(kind))
        hints = {field.name: hint for _, field, hint in kept}
        assert len(hints) == len(kept), f"parts of {kind.__name__} have fields of the same name"
        self.names = tuple(hints)
        self._part_of = {field.name: part for part, field, _ in kept}
        # Names in JSON.
        self._keys = {field.name: field.metadata.get("journal", field.name) for _, field, _ in kept}
        self._copiers = {name: _copier(hints[name]) for name in self.names}
        self._dicts = tuple(name for name in self.names if get_origin(hints[name]) is dict)
        types = [(name, list[tuple[get_args(hints[name])]] if name in self._dicts else hints[name])  # type: ignore[misc]
                 for name in self.names]  # fmt: skip
        needed = {field.name for _, field, _ in kept if field.default is field.default_factory is MISSING}
        shapes = [(name, of) if name in needed else (name, of | None, None) for name, of in types]
        struct = msgspec.defstruct(kind.__name__, shapes, rename=self._keys)
        self._decoder = msgspec.json.Decoder(struct, dec_hook=_made)

    def field_of(self, value: T, name: str) -> Any:
        """Return the field of a value, or of one of its parts, that has a name."""
        part = self._part_of[name]
        return getattr(getattr(value, part) if part else value, name)

    def copied(self, value: T) -> Copied:
        """Copy the fields of a value that `pieces` encodes, so that later changes of the value do not affect the copy.

        The time is proportional to the number of items, whatever their size.
        """
        return {self._keys[name]: item for name, item in self._copies(value)}

    def duplicate(self, value: T) -> T:
        """Copy a value, so that later changes of one do not affect the other; derived fields get their defaults."""
        return self._made_of(dict(self._copies(value)))

    def _copies(self, value: T) -> Iterator[tuple[str, Any]]:
        for name, of_field in self._copiers.items():
            item = self.field_of(value, name)
            yield name, item if of_field is None else of_field(item)

    def encode(self, value: T) -> bytes:
        """Encode a value as a JSON document."""
        return b"".join(self.pieces(self.copied(value)))

    def pieces(self, copied: Copied) -> Iterator[bytes]:
        """Encode a value as a JSON document, item by item, so that other threads can run between two items."""
        dicts = {self._keys[name] for name in self._dicts}
        for number, (key, value) in enumerate(copied.items()):
            yield b"%s%s:" % (b"," if number else b"{", _encoder.encode(key))
            if key not in dicts:
                yield _encoder.encode(value)
                continue
            yield b"["
            for at, pair in enumerate(value.items()):
                yield (b"," if at else b"") + _encoder.encode(pair)
            yield b"]"
        yield b"}"

    def decode(self, raw: bytes | msgspec.Raw) -> T:
        """Decode what `encode` wrote into a new value.

        Raises:
            Damaged: A field is missing or invalid.
        """
        try:
            decoded = self._decoder.decode(raw)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Damaged(f"a state in the journal cannot be read: {error}", remedy=_REMEDY) from error
        # Older journals lack newer fields, which then get their defaults.
        given = {name: value for name in self.names if (value := getattr(decoded, name)) is not None}
        return self._made_of(
            {name: dict(value) if name in self._dicts else value for name, value in given.items()}
        )

    def _made_of(self, by_name: Mapping[str, Any]) -> T:
        """Construct a value from its fields and those of its parts; absent fields get their defaults."""
        bodies: dict[str, dict[str, Any]] = {}
        for name, value in by_name.items():
            bodies.setdefault(self._part_of[name], {})[name] = value
        own = bodies.pop("", {})
        return self._kind(**own, **{part: self._kinds[part](**body) for part, body in bodies.items()})


def encode(value: Any) -> bytes:
    """Encode a value, which may contain dataclasses, as a JSON document."""
    return _encoder.encode(value)


def named(value: object) -> dict[str, object]:
    """Return a value in the form that `Named` decodes once it is encoded."""
    return {type(value).__name__: value}


def encode_flat(value: Any) -> bytes:
    """Encode a dataclass of plain values, or of parts with such values, as one flat JSON object.

    Infinite values are written as text, as JSON has no number for them.
    """
    parts = [getattr(value, name) for name in _parts_of(type(value))] or [value]
    body = {name: item for part in parts for name, item in msgspec.to_builtins(part, enc_hook=_plain).items()}
    endless = {
        name: str(number) for name, number in body.items() if isinstance(number, float) and isinf(number)
    }
    return _encoder.encode({**body, **endless})


def decode_flat(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode what `encode_flat` wrote; absent fields get their defaults.

    Raises:
        Damaged: The document has another form.
    """
    try:
        if parts := _parts_of(kind):
            return kind(**{name: _decode_flat(raw, part) for name, part in parts.items()})
        made: T = _decode_flat(raw, kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"settings in the journal cannot be read: {error}", remedy=_REMEDY) from error
    return made


def _decode_flat(raw: bytes | msgspec.Raw, kind: type[Any]) -> Any:
    return msgspec.json.decode(raw, type=kind, strict=False, dec_hook=_made)


def _parts_of(kind: type[Any]) -> dict[str, type[Any]]:
    """Return the types of the parts of a dataclass by their names; empty for other types."""
    if not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.metadata.get("part")}


def decode_head(line: bytes) -> Head:
    """Decode the first line of a file.

    Raises:
        Damaged: The line is not the head of a journal, or has a newer format.
    """
    try:
        head = _HEAD.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"the first line is not the head of a journal: {error}", remedy=_REMEDY) from error
    if head.journal not in (_STATE_INSIDE, FORMAT) or (head.journal == _STATE_INSIDE) is not head.has_state:
        raise Damaged(
            f"the journal has format {head.journal}, but this program supports {FORMAT}", remedy=_REMEDY
        )
    return head


def decode_beside(text: bytes) -> Beside:
    """Decode the state file beside a journal file.

    Raises:
        Damaged: The text is not such a state.
    """
    try:
        return _BESIDE.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"a state beside a journal cannot be read: {error}", remedy=_REMEDY) from error


def decode_batch(line: bytes) -> Batch:
    """Decode a line after the first.

    Raises:
        Damaged: The line is not a batch of steps.
    """
    try:
        return _BATCH.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"a line is not a step of a journal: {error}", remedy=_REMEDY) from error


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
_NAMED: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_HEAD: Final = msgspec.json.Decoder(Head)
_BESIDE: Final = msgspec.json.Decoder(Beside)
_BATCH: Final = msgspec.json.Decoder(Batch)
