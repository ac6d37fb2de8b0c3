"""What every route does with a request: read its body, wait for the engine, find the job that it names."""

import asyncio
from concurrent.futures import Future
from typing import Final, TypeVar

from starlette.requests import Request

from mesos_gpu.api.answers import Refusal
from mesos_gpu.api.service import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.job import Job

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


def job_of(view: View, wanted: str) -> Job:
    """A job by its id, or the start of it.

    Raises:
        NotFound: There is none.
        Refusal: It is the start of several.
    """
    job = view.jobs.get(JobId(wanted))
    if job is not None:
        return job
    found = [job_id for job_id in view.jobs if job_id.startswith(wanted)]
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (" …" if len(found) > 5 else "")
        what = f"{wanted} is the start of {len(found)} ids: {shown}"
        raise Refusal(409, "ambiguous", what, remedy="write more of it")
    if not found:
        raise NotFound(f"there is no job {wanted}", remedy="list the jobs with: mesos-gpu ps --all")
    return view.jobs[found[0]]
