"""Archives that users upload for their jobs: sent in pieces, and read by the executors of the jobs' tasks."""

import asyncio
import contextlib
import itertools
import logging
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from mesos_gpu.adapters.uploads.store import Upload, UploadStore
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.requests import Number, body_of, result_of
from mesos_gpu.api.http.rights import caller_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.spec import uploads as spec
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import Conflict, MesosGpuError, NoRoom, NotFound, Unavailable
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.artifact import UPLOAD
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.words import counted
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.marathon.options import gpu_options
from mesos_gpu.wire.mesos.seal import passes, secret_for

AT: Final = Number("offset", 0, 0, 1 << 50)  # bytes
SIZE: Final = Number("size", 0, 0, 1 << 50)  # bytes
TASK: Final = "Mesos-Gpu-Task"  # headers of an executor: its task's id, and a proof
PASS: Final = "Mesos-Gpu-Pass"
OF_STANDBY: Final = "standby:archives"  # used by standby schedulers for the proof; no task has this id
_PREFIX: Final = "sha256:"
_PIECE: Final = 1 << 18  # bytes
_COLLECT_S: Final = 60.0  # between removals of abandoned parts
_COLLECTS_TO_ALL: Final = 60  # every 60th of these removals also removes unused complete archives
_WRITERS: Final = 4  # separate threads, so that a slow disk delays only archives
_MAX_NAMED: Final = 5  # jobs named in a message
_NONE: Final = "this scheduler does not store archives of jobs"
T = TypeVar("T")
logger = logging.getLogger("mesos_gpu.api")


class Uploads:
    """HTTP handlers of archives.

    Args:
        store: Storage of archives; None if uploads are off.
        key: Function that returns the key from which secrets of launches derive; empty if there are none.
    """

    def __init__(self, scheduler: SchedulerApi, store: UploadStore | None, key: Callable[[], bytes]) -> None:
        self._scheduler, self._stored, self._key = scheduler, store, key
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="uploads")
        # Locks by owner, while one is held or awaited.
        self._turns = weakref.WeakValueDictionary[str, asyncio.Lock]()

    @property
    def _store(self) -> UploadStore:
        if self._stored is None:
            raise Unavailable(_NONE, remedy="use --fetch or --volume")
        return self._stored

    async def list(self, request: Request) -> Response:
        """GET /v1/uploads: the caller's archives."""
        store, owner = self._store, caller_of(request).name
        uploads = await run_in_threadpool(store.of_owner, owner)
        limits, users = store.limits, await result_of(self._scheduler.read(lambda view: _users(view, owner)))
        answer: spec.Uploads = {
            "uploads": [{**_shown(upload), "jobs": users.get(upload.digest, [])} for upload in uploads],
            "archive_limit_bytes": limits.archive_bytes,
            "owner_limit_bytes": limits.owner_bytes,
        }
        return json_answer(answer)

    async def show(self, request: Request) -> Response:
        """GET /v1/uploads/{sha256}: how much of an archive has arrived."""
        digest = request.path_params["sha256"]
        upload = await run_in_threadpool(self._store.find, caller_of(request).name, digest)
        if upload is None:
            raise NotFound(f"there is no archive {digest[:64]}", remedy="upload it, from offset=0")
        return json_answer(_shown(upload))

    async def put(self, request: Request) -> Response:
        """PUT /v1/uploads/{sha256}: add a piece to an archive."""
        store, digest, owner = self._store, request.path_params["sha256"], caller_of(request).name
        offset, size = int(AT.of(request)), int(SIZE.of(request))
        if not UPLOAD.pattern.fullmatch(_PREFIX + digest):
            raise invalid(Problem("/sha256", f"must be 64 hexadecimal digits, got {digest[:80]!r}"))
        data = await body_of(request)
        if (unsaved := self._scheduler.unsaved) is not None:
            raise NoRoom(f"no archive is accepted now: {unsaved.what}", remedy=unsaved.remedy)
        async with self._turn(owner):
            if offset == 0 and not await self._on_writer(lambda: store.has_room(owner, digest, size)):
                needed = await result_of(self._scheduler.read(needed_archives))
                await self._on_writer(lambda: store.make_room(owner, digest, needed, size))
            upload = await self._on_writer(lambda: store.put(owner, digest, offset, size, data))
        note.current().is_piece = not upload.complete
        return json_answer(_shown(upload))

    async def remove(self, request: Request) -> Response:
        """DELETE /v1/uploads/{sha256}: remove an archive that no job needs."""
        store, digest, owner = self._store, request.path_params["sha256"], caller_of(request).name
        with contextlib.ExitStack() as claim:
            claim.enter_context(store.going(owner, digest))
            users = await result_of(self._scheduler.read(lambda view: _users(view, owner)))
            if jobs := users.get(digest):
                named = ", ".join(jobs[:_MAX_NAMED]) + (", …" if len(jobs) > _MAX_NAMED else "")
                raise Conflict(
                    f"{counted(len(jobs), 'job')} of yours need{'s' * (len(jobs) == 1)} it: {named}",
                    remedy="wait until they have ended, or kill them",
                )
            removal = self._writers.submit(store.remove, owner, digest)
            until_removed = claim.pop_all()  # the thread's claim, also if this request is cancelled
            removal.add_done_callback(lambda _: until_removed.close())
            return json_answer(_shown(await asyncio.wrap_future(removal)))

    @contextlib.asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        """Wait until no other piece of the owner is being written, so that an owner uses one thread at a time."""
        turn = self._turns.setdefault(owner, asyncio.Lock())
        async with turn:
            yield

    async def _on_writer(self, fn: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writers, fn)

    async def archive(self, request: Request) -> Response:
        """GET /v1/uploads/{sha256}/archive: the bytes of an archive, for the executor of a task whose job needs it."""
        digest, task_id = request.path_params["sha256"], request.headers.get(TASK, "")
        if not self.has_pass(request.scope):
            raise NotFound(
                f"there is no archive {digest[:64]} for this request",
                remedy="archives are only sent to executors of the jobs that need them",
            )
        owner = request.query_params.get("owner")
        if owner is None:
            owner = await result_of(
                self._scheduler.read(lambda view: _owner(view, TaskId(task_id), _PREFIX + digest))
            )
        return await self._sent(owner, digest)

    def has_pass(self, scope: Scope) -> bool:
        """Return whether a request for an archive has a valid proof of an executor, or of a standby that copies it."""
        request = HTTPConnection(scope)
        shown = request.headers.get(PASS, "")
        if not shown or not (key := self._key()):
            return False
        owner = request.query_params.get("owner")
        what = f"GET {request.url.path}" + ("" if owner is None else f" {owner}")
        sender = OF_STANDBY if owner is not None else request.headers.get(TASK, "")
        return passes(shown, secret_for(key, sender), what)

    async def _sent(self, owner: str, digest: str) -> Response:
        """Answer with the bytes of an archive."""
        fd = await run_in_threadpool(self._store.open, owner, digest)
        size = os.fstat(fd).st_size
        return StreamingResponse(
            _pieces(fd), 200, {"Content-Length": str(size)}, media_type="application/gzip"
        )

    @contextlib.asynccontextmanager
    async def held(self, spec: JobSpec, owner: str) -> AsyncIterator[None]:
        """Hold the archive of a job, so that it stays while the job is submitted.

        Raises:
            Refusal: The archive is missing.
        """
        with contextlib.ExitStack() as resources:
            if spec.upload is not None:
                try:
                    archive = self._store.held(owner, spec.upload.removeprefix(_PREFIX))
                    await run_in_threadpool(resources.enter_context, archive)
                except MesosGpuError as error:
                    raise invalid(Problem("/upload", f"{error.what}: {error.remedy}")) from error
            yield

    async def tend(self) -> None:
        """Remove unneeded archives periodically, until cancelled."""
        if self._stored is None:
            return
        for number in itertools.count():
            needed = None
            try:
                if number % _COLLECTS_TO_ALL == 0:
                    needed = await result_of(self._scheduler.read(needed_archives))
            except MesosGpuError:
                return  # the scheduler is stopping
            try:
                removed = await self._on_writer(partial(self._stored.collect, needed))
            except OSError as error:
                logger.warning("cannot remove unneeded archives of jobs, as they cannot be read: %s", error)
            else:
                if removed:
                    logger.info("removed %d archives of jobs that were unused for long", removed)
            await asyncio.sleep(_COLLECT_S)

    @contextlib.asynccontextmanager
    async def tended(self) -> AsyncIterator[None]:
        """Run `tend` while the server runs."""
        task = asyncio.create_task(self.tend())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self._writers.shutdown(wait=False, cancel_futures=True)


def _shown(upload: Upload) -> spec.Upload:
    return {
        "sha256": upload.digest,
        "received_bytes": upload.received,
        "complete": upload.complete,
        "used_at": upload.used_at,
    }


def _users(view: View, owner: str) -> dict[str, list[str]]:
    """Return an owner's jobs that have not ended, and apps, by the digest of the archive that they need."""
    users: dict[str, list[str]] = {}
    for archive_owner, digest, name in _uses(view):
        if archive_owner == owner:
            users.setdefault(digest, []).append(name)
    return users


def needed_archives(view: View) -> set[tuple[str, str]]:
    """Return owners and digests of the archives of jobs that have not ended, and of apps."""
    return {(owner, digest) for owner, digest, _ in _uses(view)}


def _uses(view: View) -> Iterator[tuple[str, str, str]]:
    """Yield who needs an archive: the owner, the digest, and the id of a job that has not ended, or of an app.

    An app that is being replaced needs its archive until the end of the deployment, which may be undone.
    """
    for job in view.jobs.values():
        if job.spec.upload is not None and not job.state.ended:
            yield job.owner, job.spec.upload.removeprefix(_PREFIX), job.id
    for array in view.arrays.values():
        if array.spec.upload is not None and array.ended_at is None:
            yield array.owner, array.spec.upload.removeprefix(_PREFIX), array.id
    before = [app for deployment in view.deployments.values() for app in deployment.plan.changed_from]
    for app in (*view.catalog.root.all_apps(), *before):
        upload = gpu_options(app).upload
        if upload is not None:
            yield app.owner, upload.removeprefix(_PREFIX), app.id


def _owner(view: View, task_id: TaskId, upload: str) -> str:
    """Return the owner of the archive that a task needs.

    Raises:
        NotFound: The task has ended, or needs another archive.
    """
    task = view.tasks.get(task_id)
    job = view.jobs.get(JobId(task.job_id)) if task is not None and task.job_id and not task.ended else None
    if job is None or job.spec.upload != upload:
        raise NotFound(
            "the task has ended, or does not need this archive", remedy="see the task's job: mesos-gpu show"
        )
    return job.owner


async def _pieces(fd: int) -> AsyncIterator[bytes]:
    with os.fdopen(fd, "rb", buffering=0) as file:
        while piece := await run_in_threadpool(file.read, _PIECE):
            yield piece
