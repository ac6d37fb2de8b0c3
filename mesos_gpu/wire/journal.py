"""Lines of the scheduler's journal: JSON, one document a line, the first of each file being its head.

Nothing here knows the engine's types; they are given. Numbers come back exactly: JSON has the shortest decimal that
reads as the same float.
"""

from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from math import isinf
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from mesos_gpu.errors import Damaged
from mesos_gpu.model.resources import Resources

T = TypeVar("T")
FORMAT: Final = 1
_REMEDY: Final = "replay it with the version of mesos_gpu that wrote it, or leave this file out"


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event, as {name: fields}, and what came of it."""

    event: msgspec.Raw
    decided: list[str] = []  # calls, in words
    digest: str = ""  # of all effects, saves too; "": none
    refused: str = ""  # the engine did not grant what was asked for, and why
    failed: str = ""  # the engine broke on it


class Batch(msgspec.Struct, frozen=True):
    """What was stepped together. `seq`: of its first step, from 1 in a journal's whole life."""

    seq: int
    at: float  # seconds since the epoch
    steps: list[Step]


class Head(msgspec.Struct, frozen=True):
    """The first line of a file: all that the steps in it follow from. `seq`: that the next step will have."""

    journal: int  # FORMAT
    program: str  # version of mesos_gpu
    seq: int
    follows: bool  # the file before led to this state; else a scheduler has just started
    settings: msgspec.Raw
    state: msgspec.Raw


def _plain(value: Any) -> list[float]:
    """Write resources as a list of amounts: so a journal from before there was a further one can be read."""
    if isinstance(value, Resources):
        return list(value)
    raise NotImplementedError(f"a {type(value).__name__} has no form in the journal")


def _made(kind: type[Any], value: Any) -> Any:
    """Read what `_plain` wrote."""
    if kind is Resources:
        return Resources.of(value)
    raise NotImplementedError(f"a {kind.__name__} has no form in the journal")


class Named(Generic[T]):
    """Dataclasses of several types, as {name of the type: fields}."""

    def __init__(self, kinds: Iterable[type[T]]) -> None:
        """`kinds` are all that there are."""
        self._decoders = {kind.__name__: msgspec.json.Decoder(kind, dec_hook=_made) for kind in kinds}

    def decode(self, raw: msgspec.Raw) -> T:
        """Decode a value by the name of its type.

        Raises:
            Damaged: It is none of these types, or lacks something.
        """
        try:
            ((name, body),) = _NAMED.decode(raw).items()
            return self._decoders[name].decode(body)
        except (msgspec.DecodeError, ValueError, KeyError, RecursionError) as error:
            raise Damaged(f"a line of the journal cannot be read: {error!r}", remedy=_REMEDY) from error


class Exact(Generic[T]):
    """A dataclass whose dicts keep their order and may have keys that JSON has not: they are lists of pairs."""

    def __init__(self, kind: type[T]) -> None:
        """`kind` is made anew by its fields' names. Metadata of a field may say its name in JSON, as "journal"."""
        assert is_dataclass(kind)
        hints = get_type_hints(kind)
        self._kind = kind
        kept = [field for field in fields(kind) if not field.metadata.get("derived")]
        self.names = tuple(field.name for field in kept)
        self._keys = {field.name: field.metadata.get("journal", field.name) for field in kept}  # in JSON
        self._dicts = tuple(name for name in self.names if get_origin(hints[name]) is dict)
        types = [(name, list[tuple[get_args(hints[name])]] if name in self._dicts else hints[name])  # type: ignore[misc]
                 for name in self.names]  # fmt: skip
        needed = {each.name for each in kept if each.default is each.default_factory is MISSING}
        shapes = [(name, of) if name in needed else (name, of | None, None) for name, of in types]
        struct = msgspec.defstruct(kind.__name__, shapes, rename=self._keys)
        self._decoder = msgspec.json.Decoder(struct, dec_hook=_made)

    def encode(self, value: T) -> bytes:
        """Encode a value as a JSON document."""
        body = {name: getattr(value, name) for name in self.names}
        for name in self._dicts:
            body[name] = list(body[name].items())
        return _encoder.encode({self._keys[name]: item for name, item in body.items()})

    def decode(self, raw: bytes | msgspec.Raw) -> T:
        """Decode what `encode` wrote; the value shares nothing with the one that was encoded.

        Raises:
            Damaged: A field is missing, or not what it must be.
        """
        try:
            decoded = self._decoder.decode(raw)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Damaged(f"a state in the journal cannot be read: {error}", remedy=_REMEDY) from error
        # A journal from before there was a field lacks it: the field has its default then.
        body = {name: value for name in self.names if (value := getattr(decoded, name)) is not None}
        for name in self._dicts:
            if name in body:
                body[name] = dict(body[name])
        return self._kind(**body)


def encode(value: Any) -> bytes:
    """Encode a value, dataclasses too, as a JSON document."""
    return _encoder.encode(value)


def named(value: object) -> dict[str, object]:
    """What `Named` reads, once it is encoded."""
    return {type(value).__name__: value}


def encode_flat(value: Any) -> bytes:
    """A dataclass of plain values; one that is infinite becomes a word, as JSON has no number for it."""
    body = msgspec.to_builtins(value, enc_hook=_plain)
    endless = {name: str(each) for name, each in body.items() if isinstance(each, float) and isinf(each)}
    return _encoder.encode({**body, **endless})


def decode_flat(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    """What `encode_flat` wrote; what it lacks has its default.

    Raises:
        Damaged: It is something else.
    """
    try:
        return msgspec.json.decode(raw, type=kind, strict=False, dec_hook=_made)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"settings in the journal cannot be read: {error}", remedy=_REMEDY) from error


def decode_head(line: bytes) -> Head:
    """The first line of a file.

    Raises:
        Damaged: It is no journal, or one of a later format.
    """
    try:
        head = _HEAD.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"the first line is not the head of a journal: {error}", remedy=_REMEDY) from error
    if head.journal != FORMAT:
        raise Damaged(
            f"the journal has format {head.journal}, and this program knows {FORMAT}", remedy=_REMEDY
        )
    return head


def decode_batch(line: bytes) -> Batch:
    """Any other line.

    Raises:
        Damaged: It is something else.
    """
    try:
        return _BATCH.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"a line is not one of a journal: {error}", remedy=_REMEDY) from error


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
_NAMED: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_HEAD: Final = msgspec.json.Decoder(Head)
_BATCH: Final = msgspec.json.Decoder(Batch)
