"""Requests over TLS by a context of ours: no other authorities, no variables, nothing that turns verification off."""

import ssl
from collections.abc import Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter


class _Verifying(HTTPAdapter):
    """Transport of https:// addresses."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        super().init_poolmanager(*arguments, **more, ssl_context=self._context)

    def proxy_manager_for(self, proxy: str, **more: Any) -> Any:
        return super().proxy_manager_for(proxy, **more, ssl_context=self._context)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Add nothing: requests would add the authorities of its own bundle."""

    def send(self, request: Any, *arguments: Any, **more: Any) -> requests.Response:
        """Send as the context says, whatever REQUESTS_CA_BUNDLE or a caller's `verify` does."""
        return super().send(request, *arguments, **{**more, "verify": True, "cert": None})


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, the outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def verify_by(session: requests.Session, context: ssl.SSLContext) -> None:
    """Let a session's https:// requests be made with a context."""
    session.mount("https://", _Verifying(context))
