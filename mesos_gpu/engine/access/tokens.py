"""Tokens: created, used, revoked, and forgotten some time after they have expired."""

from dataclasses import replace
from math import inf
from typing import Final

from mesos_gpu.access.tokens import ended_with
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotFound, TooMuch
from mesos_gpu.model.access.token import Token

KEEP_EXPIRED_S: Final = 30 * 86400.0  # so that a refused request can be explained
SWEEP_S: Final = 3600.0
MAX_TOKENS: Final = 20_000
MAX_OF_NAME: Final = 100


def on_token_created(turn: Turn, event: ev.TokenCreated) -> None:
    """Save a token; if its name has the most that are allowed, remove the one that expired first.

    Raises:
        Conflict: The token with which it was created has ended.
        TooMuch: The name has the most tokens that are allowed, none of them expired, or there are too many in all.
    """
    tokens, made_with = turn.state.rights.tokens, event.token.made_with
    if made_with and made_with not in tokens:
        raise Conflict(f"token {made_with} was revoked", remedy="log in again (mesos-gpu login)")
    own = [token for token in tokens.values() if token.name == event.token.name]
    expired = sorted((each for each in own if each.expires_at <= turn.now), key=lambda each: each.expires_at)
    if len(own) >= MAX_OF_NAME:
        if not expired:
            raise TooMuch(
                f"{event.token.name} has {len(own)} tokens, and may have {MAX_OF_NAME}",
                remedy="revoke some (mesos-gpu token list, mesos-gpu token revoke ID)",
            )
        turn.drop(Token, expired[0].id)
    if len(tokens) >= MAX_TOKENS:
        raise TooMuch(
            f"there are {len(tokens)} tokens, the most that are kept",
            remedy="revoke some (mesos-gpu token list, mesos-gpu token revoke ID)",
        )
    expires_at = min(turn.now + event.lifetime_s, inf if event.until is None else event.until)
    turn.put(replace(event.token, created_at=turn.now, expires_at=expires_at))


def on_token_revoked(turn: Turn, event: ev.TokenRevoked) -> None:
    """Revoke a token, and those that were created with it.

    Raises:
        NotFound: No token has that id.
    """
    tokens = turn.state.rights.tokens
    if event.id not in tokens:
        raise NotFound(f"there is no token {event.id}", remedy="list the tokens with: mesos-gpu token list")
    for id in ended_with(tokens, [event.id]):
        turn.drop(Token, id)


def on_token_used(turn: Turn, event: ev.TokenUsed) -> None:
    """Record the time and address of a token's use, unless it was revoked meanwhile."""
    token = turn.state.rights.tokens.get(event.id)
    if token is not None:
        turn.put(replace(token, used_at=turn.now, used_from=event.address))


def on_tick(turn: Turn) -> None:
    """Remove tokens that expired long ago, once an hour."""
    if turn.now - turn.state.rights.tokens_swept_at < SWEEP_S:
        return
    turn.state.rights.tokens_swept_at = turn.now
    for token in list(turn.state.rights.tokens.values()):
        if turn.now - token.expires_at > KEEP_EXPIRED_S:
            turn.drop(Token, token.id)
