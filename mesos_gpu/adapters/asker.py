"""Readiness check over HTTP: an attempt to get an answer that says whether a task is ready."""

import io
import socket
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Final, cast

from mesos_gpu.adapters.prober import HttpGet
from mesos_gpu.model.apps.app import HttpScheme, ReadinessCheck
from mesos_gpu.model.jobs.healthcheck import Answer, HealthCheck, Protocol
from mesos_gpu.policy.apps.healthcheck import Finding
from mesos_gpu.wire.mesos.checks import status_of

MAX_BODY: Final = 16384  # bytes of a body that are kept; the rest is dropped
_PROTOCOLS: Final = {HttpScheme.HTTP: Protocol.HTTP, HttpScheme.HTTPS: Protocol.HTTPS}


def as_health_check(check: ReadinessCheck) -> HealthCheck:
    """Return interval and timeout of a readiness check in the form for the prober."""
    return HealthCheck(
        _PROTOCOLS[check.protocol], check.path, interval_s=check.interval_s, timeout_s=check.timeout_s
    )


class ReadinessAttempt(HttpGet):
    """`Attempt` that succeeds if the status means ready; the body is read only if the answer is kept.

    Args:
        ip: IPv4 or IPv6 address.
        port: Port of the task.
        check: Settings of the readiness check.
        host: Value of the Host header.
    """

    def __init__(self, ip: str, port: int, check: ReadinessCheck, *, host: str) -> None:
        super().__init__(ip, port, as_health_check(check), host=host, tls=check.protocol is HttpScheme.HTTPS)
        self._ready_codes, self._keep = check.ready_codes, check.preserve_last_response
        self.answer: Answer | None = None  # set at the end, if answers are kept

    def _judged(self, *, closed: bool) -> Finding | None:
        status, _ = status_of(self._heard)
        if status is None:
            return super()._judged(closed=closed)
        if self._keep:
            self.answer = _answer(self._heard, closed=closed or len(self._heard) > 2 * MAX_BODY)
            if self.answer is None:
                return None
        ready = status in self._ready_codes
        return Finding(ready, "" if ready else f"HTTP status {status}")


class _Heard:
    """Received data as a socket, as far as `HTTPResponse` uses one."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _answer(data: bytes, *, closed: bool) -> Answer | None:
    """Return the parsed answer; None if it is incomplete."""
    response = HTTPResponse(cast(socket.socket, _Heard(data)))
    try:
        response.begin()
        body = response.read() if closed or response.length is not None or response.chunked else None
    except IncompleteRead as error:
        body = error.partial if closed else None
    except HTTPException as error:
        raise ValueError(str(error)) from error
    if body is None:
        return None
    text = body[:MAX_BODY].decode("utf-8", "replace")
    return Answer(response.status, response.getheader("Content-Type", ""), text)
