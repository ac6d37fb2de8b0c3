"""Tokens: they are made, used, revoked, and forgotten a while after they have expired."""

from dataclasses import replace
from math import inf
from typing import Final

from mesos_gpu.access.tokens import ended_with
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotFound, TooMuch
from mesos_gpu.model.access.token import Token

KEEP_EXPIRED_S: Final = 30 * 86400.0  # for who wonders why it is refused
SWEEP_S: Final = 3600.0
MAX_TOKENS: Final = 20_000
MAX_OF_NAME: Final = 100


def on_token_created(turn: Turn, event: ev.TokenCreated) -> None:
    """Keep it. Where its name has as many as it may, the one that expired first makes room.

    Raises:
        Conflict: The token that it was made with has ended meanwhile.
        TooMuch: The name has enough that have not expired, or there are too many of all.
    """
    kept, made_with = turn.state.rights.tokens, event.token.made_with
    if made_with and made_with not in kept:
        raise Conflict(f"token {made_with} was revoked", remedy="log in again (mesos-gpu login)")
    own = [each for each in kept.values() if each.name == event.token.name]
    expired = sorted((each for each in own if each.expires_at <= turn.now), key=lambda each: each.expires_at)
    if len(own) >= MAX_OF_NAME:
        if not expired:
            raise TooMuch(
                f"{event.token.name} has {len(own)} tokens, and may have {MAX_OF_NAME}",
                remedy="revoke some (mesos-gpu token list, mesos-gpu token revoke ID)",
            )
        turn.drop(Token, expired[0].id)
    if len(kept) >= MAX_TOKENS:
        raise TooMuch(f"there are {len(kept)} tokens, the most that are kept", remedy="revoke some")
    expires_at = min(turn.now + event.lifetime_s, inf if event.until is None else event.until)
    turn.put(replace(event.token, created_at=turn.now, expires_at=expires_at))


def on_token_revoked(turn: Turn, event: ev.TokenRevoked) -> None:
    """Forget it, and those that were made with it.

    Raises:
        NotFound: There is none of that id.
    """
    kept = turn.state.rights.tokens
    if event.id not in kept:
        raise NotFound(f"there is no token {event.id}", remedy="list them with: mesos-gpu token list")
    for id in ended_with(kept, [event.id]):
        turn.drop(Token, id)


def on_token_used(turn: Turn, event: ev.TokenUsed) -> None:
    """Remember when and from where; one that was revoked meanwhile is not there any more."""
    token = turn.state.rights.tokens.get(event.id)
    if token is not None:
        turn.put(replace(token, used_at=turn.now, used_from=event.address))


def on_tick(turn: Turn) -> None:
    """Once an hour: forget those that expired long ago."""
    if turn.now - turn.state.rights.tokens_swept_at < SWEEP_S:
        return
    turn.state.rights.tokens_swept_at = turn.now
    for token in list(turn.state.rights.tokens.values()):
        if turn.now - token.expires_at > KEEP_EXPIRED_S:
            turn.drop(Token, token.id)
