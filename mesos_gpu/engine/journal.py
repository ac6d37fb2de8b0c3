"""Records of steps in a journal, with which a replay can be compared."""

from collections.abc import Iterator
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Final, get_args

import msgspec

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.saves import Save, SaveToken, subject
from mesos_gpu.model.shares.units import PER_PERCENT
from mesos_gpu.wire import journal as wire

EVENTS: Final = wire.Named[ev.Event](get_args(ev.Event))
STATES: Final = wire.Exact(State)
_FOLLOWS: Final = (Save, fx.Publish, fx.Acknowledge)  # follow from the event or from another effect

Outcome = list[fx.Effect] | Exception


def head_line(program: str, seq: int, settings: Settings, *, follows: bool) -> bytes:
    """Return the first line of a journal file.

    Args:
        program: Version of the program.
        seq: Number of the next step.
        settings: Settings of the engine.
        follows: Whether the steps of the previous file lead to the state that this file begins with.
    """
    head = wire.Head(wire.FORMAT, program, seq, follows, msgspec.Raw(wire.encode_flat(settings)))
    return wire.encode(head) + b"\n"


def begun_with(state: State) -> wire.Copied:
    """Return a copy of the state with which a journal file begins, before its first step."""
    # These fields depend on earlier requests, which a replay lacks, so both begin without them.
    state.cluster.table = None
    state.match.verdicts.clear()
    tokens = {id: _unproving(token) for id, token in state.rights.tokens.items()}
    return STATES.copied(replace(state, rights=replace(state.rights, tokens=tokens)))


def state_pieces(seq: int, copied: wire.Copied) -> Iterator[bytes]:
    """Encode the state for the document beside a journal file, in pieces; `seq` is the number of the next step."""
    yield b'{"seq":%d,"state":' % seq
    yield from STATES.pieces(copied)
    yield b"}\n"


def batch_line(seq: int, at: float, steps: list[tuple[ev.Event, Outcome]]) -> bytes:
    """Return the line of a batch: events that were stepped together, with the outcome of each."""
    recorded_steps = [recorded(event, outcome) for event, outcome in steps]
    return wire.encode(wire.Batch(seq, at, recorded_steps)) + b"\n"


def recorded(event: ev.Event, outcome: Outcome) -> wire.Step:
    """Return the record of a step.

    Args:
        event: Event of the step.
        outcome: Effects of the event, its refusal, or the error that broke the engine.
    """
    if isinstance(event, ev.TokenCreated):
        event = replace(event, token=_unproving(event.token))
    raw = msgspec.Raw(wire.encode(wire.named(event)))
    if isinstance(outcome, MesosGpuError):
        return wire.Step(raw, refused=outcome.what)
    if isinstance(outcome, Exception):
        return wire.Step(raw, failed=f"{type(outcome).__name__}: {outcome}")
    return wire.Step(raw, decisions(outcome), digest(outcome)) if outcome else wire.Step(raw)


def digest(effects: list[fx.Effect]) -> str:
    """Return a digest of effects in their order: 16 hexadecimal digits."""
    without_secrets = (SaveToken(_unproving(e.token)) if isinstance(e, SaveToken) else e for e in effects)
    return blake2b(wire.encode([wire.named(effect) for effect in without_secrets]), digest_size=8).hexdigest()


def _unproving(token: Token) -> Token:
    """Return a token without the values that prove it, as journals are passed on more freely than states."""
    return replace(token, salt="", digest="")


def decisions(effects: list[fx.Effect]) -> list[str]:
    """Return the calls in words; acknowledgements are left out, as they follow from status updates."""
    return [words(effect) for effect in effects if not isinstance(effect, _FOLLOWS)]


def words(effect: fx.Effect) -> str:
    """Return an effect as a line of text: calls without the command and environment of jobs, saves without values."""
    match effect:
        case fx.Launch(offer_ids, tasks):
            return f"Launch {'; '.join(map(_launched, tasks))}; of {' '.join(offer_ids)}"
        case _ if isinstance(effect, Save):
            return f"{type(effect).__name__} {subject(effect)[1]}"
        case _:
            values = (
                f"{field.name}={wire.encode(getattr(effect, field.name)).decode()}"
                for field in fields(effect)
            )
            return " ".join((type(effect).__name__, *values))


def _launched(item: fx.LaunchTask) -> str:
    """Return a launched task as text: its id, agent, GPUs and ports."""
    task = item.task
    ports = f", ports {' '.join(map(str, task.ports))}" if task.ports else ""
    share = (
        f"{task.share.compute_milli / PER_PERCENT:g} % and {task.share.memory_mib} MiB of "
        if task.share
        else ""
    )
    return f"{task.id} on {task.agent_id} with {share}{' '.join(task.gpus) or 'no GPU'}{ports}"
