"""What every route does with a request: read its body, wait for the engine."""

import asyncio
from concurrent.futures import Future
from typing import Final, TypeVar

from starlette.requests import Request

from mesos_gpu.api.answers import Refusal

T = TypeVar("T")
MOST_BODY: Final = 1 << 20


async def result_of(future: Future[T]) -> T:
    """The engine's answer."""
    # Shielded: a request that is given up must not cancel a future that the engine's thread will resolve.
    return await asyncio.shield(asyncio.wrap_future(future))


async def body_of(request: Request) -> bytes:
    """The whole body.

    Raises:
        Refusal: It is larger than 1 MiB.
    """
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MOST_BODY:
            what = f"the body is larger than {MOST_BODY} bytes"
            raise Refusal(413, "too-large", what, remedy="send less")
        chunks.append(chunk)
    return b"".join(chunks)
