"""An OpenID issuer with cached keys, which are refreshed off the event loop."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from mesos_gpu.access.jws import Header
from mesos_gpu.access.proofs import WrongProof
from mesos_gpu.adapters.oidc import keys
from mesos_gpu.adapters.oidc.discovery import Endpoints, discover
from mesos_gpu.adapters.oidc.fetching import Fetcher, IssuerError, check_url
from mesos_gpu.adapters.oidc.keys import Key, Keys
from mesos_gpu.errors import MesosGpuError

logger = logging.getLogger("mesos_gpu.login")


@dataclass(frozen=True, slots=True)
class Times:
    """Lifetimes of an issuer's keys.

    Attributes:
        fresh_s: Age in seconds after which keys are requested again, while they are still used.
        usable_s: Maximum age in seconds: older keys verify no tokens until the issuer answers again.
        pause_s: Minimum seconds between requests, also after unknown keys, so that clients cannot cause more of them.
        wait_s: Longest wait of a request for keys, in seconds.
    """

    fresh_s: float = 300.0
    usable_s: float = 6 * 3600.0
    pause_s: float = 30.0
    wait_s: float = 5.0


@dataclass(frozen=True, slots=True)
class _Snapshot:
    endpoints: Endpoints
    keys: Keys
    at: float  # of the monotonic clock


USUAL: Final = Times()


class Issuer:
    """An issuer, for use on one event loop.

    Args:
        url: Address of the issuer.
        fetcher: Sender of requests.
        times: Lifetimes of keys.
        clock: Function that returns monotonic time in seconds.

    Raises:
        BadConfiguration: `url` is not an address of an issuer.
    """

    def __init__(
        self,
        url: str,
        fetcher: Fetcher,
        times: Times = USUAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = check_url(url, "the issuer")
        self.fetcher, self._times, self._clock = fetcher, times, clock
        self._known: _Snapshot | None = None
        self._request: asyncio.Future[_Snapshot] | None = None
        self._tried_at = -float("inf")
        self.problem = ""  # of the last attempt; "" if it succeeded

    async def key_of(self, header: Header) -> Key:
        """Return the key that a token names.

        Raises:
            WrongProof: The issuer has no such key, or cannot be reached.
        """
        current = await self._usable()
        key = current.keys.find(header)
        if key is None:
            await self._await_attempt()
            key = (await self._usable()).keys.find(header)
        if key is None:
            what = "the token is signed by a key that its issuer does not have"
            raise WrongProof(
                what, guessed=not self.problem
            )  # if the issuer does not answer, it may have a new key
        return key

    async def endpoints(self) -> Endpoints:
        """Return the endpoints of the issuer.

        Raises:
            WrongProof: The issuer cannot be reached.
        """
        return (await self._usable()).endpoints

    def has(self, thumbprint: str) -> bool:
        """Return whether the issuer still has a key, by its current keys."""
        return self._is_usable() and self._known is not None and self._known.keys.has(thumbprint)

    async def _usable(self) -> _Snapshot:
        if not self._is_usable():
            await self._await_attempt()
        elif self._age_s() > self._times.fresh_s:
            self._start_attempt()
        if self._known is None or not self._is_usable():
            raise WrongProof(
                "the issuer's keys are not available",
                guessed=False,
                remedy="try again in a minute, or authenticate without the issuer",
            )
        return self._known

    def _is_usable(self) -> bool:
        return self._age_s() <= self._times.usable_s

    def _age_s(self) -> float:
        return float("inf") if self._known is None else self._clock() - self._known.at

    async def _await_attempt(self) -> None:
        """Wait for the running request for keys, or for a new one if it may begin now."""
        request = self._start_attempt()
        if request is not None:
            await asyncio.wait([request], timeout=self._times.wait_s)

    def _start_attempt(self) -> asyncio.Future[_Snapshot] | None:
        """Return the running request for keys, or start one; None if the last one was too short a time ago."""
        if self._request is not None:
            return self._request
        now = self._clock()
        if now - self._tried_at < self._times.pause_s:
            return None
        self._tried_at = now
        done: Future[_Snapshot] = Future()
        threading.Thread(target=self._request_keys, args=(done, now), name="oidc", daemon=True).start()
        self._request = asyncio.wrap_future(done)
        self._request.add_done_callback(self._finish_attempt)
        return self._request

    def _finish_attempt(self, request: asyncio.Future[_Snapshot]) -> None:
        """Keep the keys that a request to the issuer returned, or note why it failed."""
        self._request = None
        error = None if request.cancelled() else request.exception()
        if request.cancelled() or error is not None:
            self._note(error.what if isinstance(error, MesosGpuError) else repr(error))
            return
        latest = request.result()
        before = self._known.keys if self._known else None
        if before is not None and before != latest.keys:
            logger.info("the issuer %s has changed its keys: %d", self.url, len(latest.keys.each))
        self._known = latest
        self._note("")

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.warning("the issuer's keys cannot be read: %s", problem)
        elif self.problem and not problem:
            logger.info("the issuer's keys can be read again")
        self.problem = problem

    def _request_keys(self, done: "Future[_Snapshot]", at: float) -> None:
        """Request endpoints and keys, on a thread of its own."""
        try:
            endpoints = discover(self.url, self.fetcher)
            answer = self.fetcher.get(endpoints.keys)
            if answer.status != 200:
                raise IssuerError(f"{endpoints.keys} answers {answer.status}", remedy="check the issuer")
            latest = _Snapshot(endpoints, keys.parse(answer.body), at)
        except Exception as error:  # noqa: BLE001 # any error is passed on to the waiting requests
            done.set_exception(error)
        else:
            done.set_result(latest)
