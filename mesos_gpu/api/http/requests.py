"""Functions for all routes: read a request's body and query, wait for the engine, find the job that is named."""

import asyncio
import re
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from starlette.requests import ClientDisconnect, Request

from mesos_gpu.access.rate import Tally
from mesos_gpu.api.http import arrays
from mesos_gpu.api.http.answers import Refusal, invalid
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.http.rate import key_of
from mesos_gpu.api.http.rights import admit_again
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.arrays.indexes import count
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.wire.checking import Problem

T = TypeVar("T")
MAX_BODY: Final = 1 << 20
MAX_APPS: Final = 1 << 24  # bytes of a body with apps or groups; enough for all of a Marathon
MAX_CREDENTIALS: Final = 1 << 17  # bytes of a log-in form, which need no authentication
SMALL_BODY: Final = 1 << 13  # bytes; larger bodies are decoded on another thread
_READERS: Final = ThreadPoolExecutor(4, thread_name_prefix="bodies")
_MAX_LARGE: Final = 2  # bodies of more than `MAX_BODY` at once, of all callers; they may need 400 MB each
_LARGE: Final = Tally(1, _MAX_LARGE)
_PLACE: Final = "mesos_gpu.large_body"  # key in a request's scope, with the caller whose place it uses
#: Locks of callers, while one is held or awaited.
_turns: Final = weakref.WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock]()
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Number:
    """An optional number in a query, with its bounds and its default."""

    name: str
    default: float
    least: float
    most: float
    whole: bool = True

    def of(self, request: Request) -> float:
        """Return the number in a request, or the default.

        Raises:
            Refusal: It is not a number within the bounds.
        """
        text = request.query_params.get(self.name)
        if text is None:
            return self.default
        digits = (_WHOLE if self.whole else _DECIMAL).fullmatch(text)
        value = (int if self.whole else float)(text) if digits else self.least - 1
        if not self.least <= value <= self.most:
            form = "an integer" if self.whole else "a number"
            why = f"must be {form} from {self.least:.15g} to {self.most:.15g}, got {text!r}"
            raise invalid(Problem(f"/{self.name}", why))
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """An optional Boolean field of a query; false by default."""

    name: str

    def of(self, request: Request) -> bool:
        """Return the value in a request.

        Raises:
            Refusal: It is neither "true" nor "false".
        """
        text = request.query_params.get(self.name, "false")
        if text not in ("true", "false"):
            raise invalid(Problem(f"/{self.name}", f"must be true or false, got {text!r}"))
        return text == "true"


MAX_LOG_BYTES: Final = 1 << 20  # of one answer
SHOW_ENV: Final = Flag("show_env")
MAX_LISTED: Final = Number("limit", 1000, 1, 1_000_000)  # jobs
SKIP: Final = Number("skip", 0, 0, 1_000_000)  # jobs
NO_INSTANCES: Final = Flag("no_instances")
FOLD_ARRAYS: Final = Flag("fold_arrays")
MAX_QUEUED: Final = Number("limit", 100, 1, 1000)  # pending jobs
AFTER: Final = Number("after", 0, 0, 1 << 62)  # the number of an event
AFTER_VERSION: Final = Number("after_version", 0, 0, 1 << 62)
WAIT_S: Final = Number("timeout_s", 30.0, 0.0, 60.0, whole=False)
RESTART: Final = Flag("restart")
ANSWER_S: Final = Number("timeout_s", 10.0, 0.0, 60.0, whole=False)
OFFSET: Final = Number("offset", 0, -(1 << 62), 1 << 62)  # bytes
TIMES: Final = Flag("times")
SINCE: Final = Number("since", 0.0, 0.0, 1e11, whole=False)  # seconds since the epoch
UNTIL: Final = Number("until", 1e11, 0.0, 1e11, whole=False)
LENGTH: Final = Number("length", 1 << 16, 1, MAX_LOG_BYTES)  # bytes


async def result_of(future: Future[T]) -> T:
    """Wait for a future of the engine and return its result."""
    # Shielded: a cancelled request must not cancel a future that the engine's thread will resolve.
    return await asyncio.shield(asyncio.wrap_future(future))


@contextmanager
def large_bodies(request: Request) -> Iterator[None]:
    """Release the place of a large body when its request is answered; until then its values are in memory."""
    try:
        yield
    finally:
        key = request.scope.pop(_PLACE, None)
        if key is not None:
            _LARGE.leave(key)


def _too_large(most: int) -> Refusal:
    """Return the refusal of a body of more than `most` bytes."""
    bound = f"{most >> 20} MiB" if most >= MAX_BODY else f"{most >> 10} KiB"
    remedy = "send it in parts, such as one group in each request" if most > MAX_BODY else "send less"
    return Refusal(413, "too-large", f"the body is larger than {bound} ({most} bytes)", remedy=remedy)


def _take_place(request: Request) -> None:
    """Take a place for a body of more than `MAX_BODY` bytes, unless its request has one.

    Args:
        request: Request of a route that uses `large_bodies`.

    Raises:
        Refusal: No place is free.
    """
    if _PLACE in request.scope:
        return
    key, bound = key_of(request.scope), f"{MAX_BODY >> 20} MiB"
    if not _LARGE.enter(key):
        REFUSED.count(Reason.BUSY)
        what = f"{key} is sending another body of more than {bound}, or all callers are sending {_MAX_LARGE}"
        raise Refusal(429, "busy", what, remedy="try again in 1 s", headers={"Retry-After": "1"})
    request.scope[_PLACE] = key


async def body_of(request: Request, most: int = MAX_BODY) -> bytes:
    """Return the whole body.

    Raises:
        Refusal: It is larger than `most` bytes, or does not come in time, which ends the connection; or the caller's
            right has ended meanwhile; or too many large bodies are under way.
    """
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdecimal() and int(announced) > most:
        raise _too_large(most)
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise _too_large(most)
            if size > MAX_BODY:
                _take_place(request)
            chunks.append(chunk)
    except ClientDisconnect:
        raise Refusal(
            400, "gone", "the client disconnected before its body was complete", remedy="send the whole body"
        ) from None
    admit_again(request)
    return b"".join(chunks)


async def in_turn(request: Request, work: Callable[[], T]) -> T:
    """Run long work on a thread, for each caller one at a time, and return its result."""
    loop, key = asyncio.get_running_loop(), key_of(request.scope)
    turn = _turns.setdefault((loop, key), asyncio.Lock())
    async with turn:
        return await loop.run_in_executor(_READERS, work)


async def decoded_by(request: Request, body: bytes, read: Callable[[bytes], T]) -> T:
    """Apply a decoder to a body and return its result; large bodies are decoded on another thread, one per caller.

    Raises:
        Refusal: The caller's right has ended meanwhile.
    """
    if len(body) <= SMALL_BODY:
        return read(body)
    value = await in_turn(request, partial(read, body))
    admit_again(request)
    return value


async def read_of(request: Request, read: Callable[[bytes], T], most: int = MAX_BODY) -> T:
    """Receive the whole body, of at most `most` bytes, apply a decoder, and return its result.

    Raises:
        Refusal: See `body_of` and `decoded_by`.
    """
    return await decoded_by(request, await body_of(request, most), read)


def _all(_job: Job) -> bool:
    return True


def launch_of(view: View, wanted: str, sees: Callable[[Job], bool] = _all) -> TaskId | None:
    """Return the task that a task id of Mesos or Marathon names; of a launch with several tasks the one of rank 0.

    None if there is no such task of a visible job. `sees`: see `job_of`.
    """
    ids = (TaskId(wanted), TaskId(f"{wanted}.0"))
    return next((id for id in ids if (job := _owner(view, id)) is not None and sees(job)), None)


def _owner(view: View, task_id: TaskId) -> Job | None:
    """Return the job of a task."""
    task = view.tasks.get(task_id)
    return view.jobs.get(task.job_id) if task and task.job_id else None


def _id_begins(job: Job, wanted: str) -> bool:
    """Return whether a job's id begins with a text; the text must contain the index for an array's task."""
    return job.id.startswith(wanted) and (job.array is None or wanted.startswith(job.spec.name))


def _array_job(view: View, wanted: str, sees: Callable[[Job], bool]) -> Job | None:
    """Return an array by its id, or one of its tasks by its array's name or id and its index; None for neither."""
    array = view.arrays.get(JobId(wanted))
    if array is not None and sees(job := arrays.shown(view, array)):
        return job
    some = arrays.some_of(view, wanted, sees)
    if some is not None and count(some[2]) > 1:
        what = f"{wanted} are {count(some[2])} tasks of array {some[0].id}"
        raise Refusal(409, "several-tasks", what, remedy=f"name a single task, or see /v1/arrays/{wanted}")
    return arrays.task_of(view, wanted, sees)


def job_of(view: View, wanted: str, sees: Callable[[Job], bool] = _all) -> Job:
    """Return the job that a text names: by its id, its name, the start of its id, or the id of one of its launches.

    A job array counts as a job, and a waiting task of it as the job that it will be. A name means the job of that name
    that has not ended, or, if all have, the latest. `sees`: returns whether the caller may see a job; others are
    ignored.

    Raises:
        NotFound: There is no such job.
        Refusal: The name fits several jobs that have not ended, or the start of several ids, or several tasks of an
            array.
    """
    job = view.jobs.get(JobId(wanted))
    if job is not None and sees(job):
        return job
    if view.arrays and (of_array := _array_job(view, wanted, sees)) is not None:
        return of_array
    candidates = [job for job in view.jobs.values() if _id_begins(job, wanted) and sees(job)]
    candidates += arrays.like(view, wanted, sees)
    named = [job for job in candidates if job.spec.name == wanted]
    if named and all(job.state.ended for job in named):
        return max(reversed(named), key=lambda job: job.submitted_at)
    matching = [job for job in named if not job.state.ended] or candidates
    if len(matching) > 1:
        shown = ", ".join(job.id for job in matching[:5]) + (" …" if len(matching) > 5 else "")
        is_ = f"the name of {len(matching)} jobs" if named else f"the start of {len(matching)} ids"
        raise Refusal(
            409, "ambiguous", f"{wanted} is {is_}: {shown}", remedy="give more characters of the id"
        )
    if matching:
        return matching[0]
    launch = launch_of(view, wanted, sees)
    owner = _owner(view, launch) if launch is not None else None
    if owner is None:
        raise NotFound(f"there is no job {wanted}", remedy="list the jobs with: mesos-gpu ps --all")
    return owner
