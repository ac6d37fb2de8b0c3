"""Resizes of shares of running tasks.

A task has the share that its executor confirmed; until then its GPUs count the larger one of both sizes.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mesos_gpu.engine.charges import charges_of, cost_of_granted
from mesos_gpu.engine.effects import AskResize
from mesos_gpu.engine.events import ResizeRequested, ResizeWithdrawn
from mesos_gpu.engine.gpus.covers import compute_milli
from mesos_gpu.engine.tasks.evictions import evict
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.ids import GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Share
from mesos_gpu.model.shares.units import PER_PERCENT, WHOLE
from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer, Resizing
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.admission.limits import Wait, scopes_of
from mesos_gpu.policy.admission.reasons import ScopeLimit
from mesos_gpu.policy.capacity.node import Reservation
from mesos_gpu.policy.queueing.backoff import patience_s
from mesos_gpu.policy.room.reservation import beyond, ends_by, outlasts
from mesos_gpu.policy.sharing.resizing import fixed, lacking, resized
from mesos_gpu.policy.tenancy.tree import lineage
from mesos_gpu.wire.mesos.resize import decode_answer

Kept = Callable[[], Sequence[Reservation]]  # returns reservations of pending jobs
Lenders = Callable[[Job, str, int], Wait | None]  # returns why lend limits leave a job no more of a pool


def on_resize_requested(turn: Turn, event: ResizeRequested, kept: Kept, lenders: Lenders) -> None:
    """Request other shares from the executors of a job, or start the job again if that is wanted and the only way.

    Args:
        turn: State and effects of this step.
        event: Request of a user for other shares.
        kept: Function that returns the reservations of pending jobs.
        lenders: Function that returns why lend limits leave a job no more of a pool.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job does not run, has no share, is being resized or drained, or there is no room for the share.
    """
    job = _job(turn, event.job_id)
    tasks = _changeable(turn, job)
    if "gpu_milli" in event.patch and job.spec.gpus > 1:
        what = f"job {job.id} has parts of {job.spec.gpus} GPUs, and a fraction is for one GPU only"
        raise Conflict(what, remedy="give its part of each GPU: --gpu-memory, --gpu-compute, or both")
    spec = replace(job.spec, **event.patch)  # type: ignore[arg-type]
    new_shares = {task.id: _share_by(turn, job, task, spec) for task in tasks}
    _check_limit(turn, job, spec, lenders)
    why, remedy = _obstacle(turn, tasks, new_shares)
    if why:
        _check_ever(turn, spec)
    if why and event.restart:
        _start_again(turn, job, spec, why)
        return
    if why:
        again = (
            f"let it start again with that share: mesos-gpu resize {job.id} --restart, with the same amounts"
        )
        raise Conflict(f"job {job.id} cannot be resized while it runs: {why}", remedy=remedy + again)
    _check_kept(turn, job, tasks, new_shares, spec, kept())
    turn.put_job(job)
    for task in tasks:
        number = task.resize.number + 1 if task.resize else 1
        before = task.share or new_shares[task.id]
        resize = Resizing(number, new_shares[task.id], before, turn.now, dict(event.patch), event.restart)
        _ask(turn, replace(task, resize=resize))


def on_resize_withdrawn(turn: Turn, event: ResizeWithdrawn) -> None:
    """Request the shares of a job before a resize that not all of its executors have confirmed.

    Until they have answered, its GPUs count both sizes. A second request changes nothing.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job is not being resized, or another task has got what some of its tasks gave back.
    """
    job = _job(turn, event.job_id)
    tasks = turn.state.work.round_of(job)
    resizes = [(task, task.resize) for task in tasks if not task.ended and task.resize and task.resize.number]
    if not any(resize.pending for _, resize in resizes):
        if any(resize.withdrawn for _, resize in resizes):
            return
        raise Conflict(
            f"job {job.id} is not being resized",
            remedy="see its share with: mesos-gpu show; resize it again",
        )
    if any(resize.back for _, resize in resizes if resize.pending):
        return  # the resize is being undone already
    back = {task.id: resize.before for task, resize in resizes if not resize.refused}
    if why := _obstacle(turn, [task for task, _ in resizes if task.id in back], back)[0]:
        what = f"the resize of job {job.id} cannot be withdrawn any more: {why}"
        raise Conflict(what, remedy="wait until its hosts have answered, and resize it again")
    job = turn.put_job(
        replace(job, message="its resize is being withdrawn; its hosts have not confirmed yet")
    )
    for task, resize in resizes:
        if not resize.refused:
            _ask(turn, replace(task, resize=replace(_reversed(resize), withdrawn=True)))


def _reversed(resize: Resizing) -> Resizing:
    """Return the resize that undoes another one, whether that was done or not."""
    return replace(
        resize,
        number=resize.number + 1,
        share=resize.before,
        before=resize.share,
        back=True,
        answered=False,
    )


def _job(turn: Turn, job_id: JobId) -> Job:
    """Return a job.

    Raises:
        NotFound: The job does not exist.
    """
    job = turn.state.work.jobs.get(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}", remedy="list the jobs with: mesos-gpu ps --all")
    return job


def _changeable(turn: Turn, job: Job) -> list[Task]:
    """Return the tasks whose shares are to change, which all run.

    Raises:
        Conflict: The job cannot be resized now.
    """
    if not job.spec.is_share:
        what = f"job {job.id} has no share: it holds {'whole GPUs' if job.spec.gpus else 'no GPU'}"
        raise Conflict(
            what, remedy="only a share can be resized; submit it again with a fraction, as --gpus 0.25"
        )
    tasks = turn.state.work.round_of(job)
    running = bool(tasks) and all(task.state is TaskState.RUNNING and not task.evicted for task in tasks)
    if not running or job.kill_requested:
        what = f"job {job.id} is {job.state.value}, and only a running one can be resized"
        raise Conflict(what, remedy="wait until all its tasks run; see: mesos-gpu show")
    pending = next((task.resize for task in tasks if task.resize and task.resize.pending), None)
    if pending is not None:
        if not pending.number:
            what = f"job {job.id} was adopted, and its host has not reported its share yet"
            raise Conflict(what, remedy=f"wait for the answer of its host; see: mesos-gpu show {job.id}")
        what = f"job {job.id} is being resized for {turn.now - pending.since:.0f} s already"
        withdraw = f"mesos-gpu resize {job.id} --withdraw"
        raise Conflict(what, remedy=f"wait for the answer of its host, or: {withdraw}")
    for task in tasks:
        for drain in (turn.state.cluster.drain_of(task.hostname, gpu) for gpu in task.gpus):
            if drain is not None:
                what = f"job {job.id} cannot be resized on its node: {drain.name} is {drain.words}"
                raise Conflict(what, remedy="wait for the end of the drain, or let the job start elsewhere")
    return tasks


def _check_limit(turn: Turn, job: Job, spec: JobSpec, lenders: Lenders) -> None:
    """Check that limits of queues and users leave room for a larger share.

    Raises:
        Conflict: A limit of a queue or a user, or a lend limit of another queue, leaves no room.
    """
    charges, more = charges_of(turn.state, turn.settings), spec.counted_milli - job.spec.counted_milli
    if more <= 0:
        return
    document, grows = charges.tree.document, Counter[str]()  # by pool
    for task in turn.state.work.round_of(job):
        node, (_, charge) = turn.state.cluster.nodes.get(task.agent_id), charges.of_task[task.id]
        grows[charge.pool] += cost_of_granted(document, node, task.gpus, spec.gpu_model, more)
    for bound in charges.tree.bounds.get(job.spec.queue, ()):
        after_milli = charges.sums.amounts[bound.path, bound.pool] + grows[bound.pool]
        if not grows[bound.pool] or after_milli <= bound.milli:
            continue
        limit = bound.milli / WHOLE
        what = f"queue {bound.path} would hold {after_milli / WHOLE:g} GPUs, and its limit is {limit:g}"
        raise Conflict(
            f"job {job.id} cannot be resized: {what}", remedy="ask for less, or wait until others end"
        )
    scopes, users = scopes_of(charges.tree, job.spec.queue, job.charged_to), charges.sums.users
    waits = [lenders(job, pool, milli) for pool, milli in grows.items()]
    for scope in scopes:
        waits += [reason.wait() for reason in ScopeLimit.of_gpus(scope, grows.total(), lambda *of: users[of])]
    if wait := next(filter(None, waits), None):
        what = f"job {job.id} cannot be resized: {wait.words}"
        raise Conflict(what, remedy="ask for less, or wait until others end")


def _check_kept(
    turn: Turn,
    job: Job,
    tasks: Sequence[Task],
    wanted: dict[TaskId, Share],
    spec: JobSpec,
    kept: Sequence[Reservation],
) -> None:
    """Check that the tasks of a job do not grow into reservations of pending jobs.

    Raises:
        Conflict: They would.
    """
    more_mib, more_milli = Counter[GpuId](), Counter[GpuId]()
    for task, share in [(task, task.share) for task in tasks if task.share]:
        for gpu_id in task.gpus:
            more_mib[gpu_id] += wanted[task.id].memory_mib - share.memory_mib
            more_milli[gpu_id] += wanted[task.id].compute_milli - share.compute_milli
    queued_milli = (spec.counted_milli - job.spec.counted_milli) * job.spec.tasks
    ends_at = max(ends_by(job.spec, task.started_at or turn.now) for task in tasks)
    for reservation in kept:
        if not outlasts(ends_at, reservation) or any(held.job_id == job.id for held in reservation.awaited):
            continue  # the job has ended by then
        whys = (beyond(reservation, gpu_id, more_mib[gpu_id], more_milli[gpu_id]) for gpu_id in more_mib)
        why = next(filter(None, whys), "")
        beside = [spare for spare in reservation.spares if spare.queue in lineage(job.spec.queue)]
        short = next((spare for spare in beside if 0 < queued_milli > spare.milli), None)
        if not why and short is not None:
            left = max(short.milli, 0) / WHOLE
            why = f"queue {short.queue} has {left:g} GPUs beside it, and {queued_milli / WHOLE:g} more are asked for"
        if why:
            what = f"job {job.id} cannot be resized: job {reservation.job_id} waits, and {why}"
            raise Conflict(what, remedy=f"ask for less, or wait until {reservation.job_id} has started")


def _check_ever(turn: Turn, spec: JobSpec) -> None:
    """Check that a job which has to start again for its share can start at all.

    Raises:
        Conflict: No known GPU has that much memory for a share.
    """
    gpus = [gpu for node in turn.state.cluster.nodes.values() if node.lost_at is None for gpu in node.gpus]
    models = turn.state.cluster.models_of(spec.gpu_model)
    fitting = [gpu for gpu in gpus if not models or gpu.model in models]
    most_mib = max((gpu.sharing.memory_mib for gpu in fitting if gpu.sharing), default=0)
    if (spec.gpu_memory_mib or 0) > most_mib:
        what = f"no GPU has {spec.gpu_memory_mib} MiB for a share; the largest has {most_mib}"
        raise Conflict(what, remedy="ask for less")


def _share_by(turn: Turn, job: Job, task: Task, spec: JobSpec) -> Share:
    """Return the share that a task would have by a changed request.

    Raises:
        Conflict: The request is not for a share, or its upper limit of memory is below its memory.
    """
    request = spec.share_request(turn.settings.placing.isolation)
    if request is None or task.share is None or request.memory_milli == WHOLE:
        raise Conflict(f"job {job.id} would have no share", remedy="give amounts, not null")
    if (request.memory_mib is None or request.memory_max_mib is not None) and not _is_reported(turn, task):
        what = f"job {job.id} cannot be resized: its host does not report how much memory its GPUs have for shares"
        raise Conflict(what, remedy="wait until its node monitor runs; see: mesos-gpu gpus")
    share = resized(task.share, request, _capacity_mib(turn, task, task.gpus[0]))
    if request.memory_max_mib is not None and request.memory_max_mib < share.memory_mib:
        what = f"gpu_memory_max_mib {request.memory_max_mib} is less than its share of {share.memory_mib} MiB"
        raise Conflict(what, remedy="ask for at least as much")
    return share


def _capacity_mib(turn: Turn, task: Task, gpu_id: GpuId) -> int:
    """Return the memory of a GPU for shares; the sum of its shares if its node does not report it any more."""
    sharing = _sharing(turn, task, gpu_id)
    if sharing is not None:
        return sharing.memory_mib
    return sum(share.memory_mib for share in turn.state.gpus.sharers.get(gpu_id, {}).values())


def _obstacle(turn: Turn, tasks: Sequence[Task], wanted: dict[TaskId, Share]) -> tuple[str, str]:
    """Return why tasks cannot get other shares on their nodes, and what helps but a restart; "" each if they can."""
    for task in tasks:
        if task.share and (why := fixed(task.share, wanted[task.id])):
            return why, ""
    for task in tasks:
        for gpu_id in task.gpus:
            old = turn.state.gpus.sharers[gpu_id]
            new = [wanted.get(task_id, share) for task_id, share in old.items()]
            room = _capacity_mib(turn, task, gpu_id), compute_milli(turn.settings)
            if why := lacking(gpu_id, *room, list(old.values()), new):
                return why, "ask for less, or "
    return "", ""


def _start_again(turn: Turn, job: Job, spec: JobSpec, why: str) -> None:
    """Start a job again with a changed request."""
    job = turn.put_job(replace(job, spec=spec))
    evict(turn, job, f"it is resized, which cannot be done while it runs: {why}")


def _ask(turn: Turn, task: Task) -> None:
    """Send a resize to the executor of a task, if the master is connected; `on_tick` repeats it until the answer."""
    assert task.resize is not None
    share, connected = task.resize.share, turn.state.mesos.connected
    turn.put_task(replace(task, resize=replace(task.resize, sent_at=turn.now if connected else None)))
    if connected:
        amounts = Resize(task.resize.number, share.memory_mib, share.memory_max_mib, share.compute_milli)
        turn.effects.append(AskResize(task.agent_id, task.executor_id, task.id, amounts))


def on_tick(turn: Turn) -> None:
    """Send resizes again that were not answered."""
    sharers = {task_id: None for shares in turn.state.gpus.sharers.values() for task_id in shares}
    for task in [turn.state.work.tasks[task_id] for task_id in sharers]:
        resize = task.resize
        if resize is None or not resize.pending or task.state is not TaskState.RUNNING:
            continue
        if not resize.number and not _is_reported(turn, task):
            continue  # its highest possible share is not known yet
        waits_s = patience_s(turn.now - resize.since, turn.settings.tasks.resize_resend_s)
        if resize.sent_at is None or turn.now - resize.sent_at >= waits_s:
            _ask(turn, task)


def on_resized(turn: Turn, task: Task, status: Status) -> None:
    """Apply an executor's answer to a resize; a late or repeated answer changes nothing."""
    try:
        answer = decode_answer(status.data)
    except ValueError:
        return  # data of a foreign executor
    resize, share = task.resize, task.share
    if answer is None or resize is None or share is None:
        return
    if resize.pending and not resize.number:
        _apply_reported(turn, task, answer)
        return
    if resize.pending and answer.number > resize.number:
        # A lost state had sent more requests: the executor obeys only a number that is new to it.
        _ask(turn, replace(task, resize=replace(resize, number=answer.number + 1)))
        return
    if answer.number > resize.number:
        turn.put_task(question(task, turn.now))  # it did what a lost state had requested
        return
    if answer.number != resize.number or not resize.pending:
        return
    if not answer.refused and not _is_as_asked(answer, resize.share):
        # A lost state had sent another request by this number; the next number is sent in time.
        turn.put_task(replace(task, resize=replace(resize, number=answer.number + 1)))
        return
    share = _confirmed(answer, task.counted_share or share)
    resize = replace(
        resize,
        answered=True,
        refused=answer.refused,
        used_mib=answer.used_mib,
        restartable=answer.restart,
    )
    turn.put_task(replace(task, share=share, resize=resize))
    job = turn.state.work.current(task)
    if job is not None and not job.state.ended:
        _settle(turn, job)


def _is_as_asked(answer: ResizeAnswer, share: Share) -> bool:
    """Return whether a confirmed share equals the requested one."""
    requested = share.memory_mib, share.memory_max_mib, share.compute_milli
    return (answer.memory_mib, answer.memory_max_mib, answer.compute_milli) == requested


def _confirmed(answer: ResizeAnswer, most: Share) -> Share:
    """Return the share that an executor confirms, but no more than its GPUs count for the task."""
    return replace(
        most,
        memory_mib=min(answer.memory_mib, most.memory_mib),
        memory_max_mib=min(answer.memory_max_mib, most.memory_max_mib),
        compute_milli=min(answer.compute_milli, most.compute_milli),
    )


def question(task: Task, now: float) -> Task:
    """Return a task with a question for its share, whose labels or state may be older than its latest resize.

    A resize in progress is given up for that; its size counts until the answer.
    """
    share, resize = task.share, task.resize
    if share is None or (resize is not None and resize.pending and not resize.number):
        return task
    return replace(task, resize=Resizing(0, share, task.counted_share or share, now))


def _apply_reported(turn: Turn, task: Task, answer: ResizeAnswer) -> None:
    """Apply the share that an executor reports of a task that was unknown, or whose resize may have been lost."""
    old, asked = task.share, task.resize
    assert old is not None, "only tasks with shares are asked"
    assert asked is not None, "the task was asked"
    # An answer without memory: the task has no share that can be changed.
    share = _confirmed(answer, _most(turn, task, old)) if answer.memory_mib else old
    # The host refuses what others were granted meanwhile, so it is asked again.
    counted = (share.memory_mib, share.compute_milli) == (answer.memory_mib, answer.compute_milli)
    if counted or share is old:
        asked = replace(asked, number=answer.number, share=share, answered=True)
    turn.put_task(replace(task, share=share, resize=asked))
    job = turn.state.work.current(task)
    if job is not None and not job.state.ended and share != old:
        spec = replace(job.spec, **changes(old, share))
        turn.put_job(replace(job, spec=spec, message=f"it was resized to {_words(share)}"))


def changes(old: Share, new: Share) -> dict[str, Any]:
    """Return the fields of a job's request that change with its shares."""
    changed: dict[str, Any] = {}
    if new.memory_mib != old.memory_mib:
        changed["gpu_memory_mib"] = new.memory_mib
    if new.memory_max_mib != old.memory_max_mib and new.memory_max_mib != new.memory_mib:
        changed["gpu_memory_max_mib"] = new.memory_max_mib
    if new.compute_milli != old.compute_milli:
        changed["gpu_compute_pct"] = max(new.compute_milli // PER_PERCENT, 1)
    return changed


def _is_reported(turn: Turn, task: Task) -> bool:
    """Return whether the node of a task reports the memory of its GPUs for shares."""
    return all(_sharing(turn, task, gpu_id) is not None for gpu_id in task.gpus)


def _sharing(turn: Turn, task: Task, gpu_id: GpuId) -> Sharing | None:
    """Return the abilities for shares that a task's node reports of a GPU; None without a report."""
    node = turn.state.cluster.nodes.get(task.agent_id)
    gpu = node.gpu(gpu_id) if node else None
    return gpu.sharing if gpu else None


def _most(turn: Turn, task: Task, share: Share) -> Share:
    """Return the largest share that a task can have got of its GPUs: all that other tasks do not have."""
    mib, milli = [], []
    for gpu_id in task.gpus:
        others = [
            other for task_id, other in turn.state.gpus.sharers.get(gpu_id, {}).items() if task_id != task.id
        ]
        capacity_mib = _capacity_mib(turn, task, gpu_id)
        mib.append(max(capacity_mib - sum(other.memory_mib for other in others), share.memory_mib))
        free = compute_milli(turn.settings) - sum(other.compute_milli for other in others)
        milli.append(max(free, share.compute_milli))
    largest_mib = min(_capacity_mib(turn, task, gpu_id) for gpu_id in task.gpus)
    most_mib = max(share.memory_max_mib, largest_mib)
    return replace(share, memory_mib=min(mib), memory_max_mib=most_mib, compute_milli=min(milli))


def _settle(turn: Turn, job: Job) -> None:
    """Decide what becomes of a job once all its tasks have answered a resize."""
    job = turn.put_job(job)
    members = [
        (task, task.resize) for task in turn.state.work.round_of(job) if not task.ended and task.resize
    ]
    if any(resize.pending for _, resize in members):
        return
    if any(resize.withdrawn for _, resize in members):
        _settle_withdrawn(turn, job, members)
        return
    refused = [resize for _, resize in members if resize.refused]
    done = [(task, resize) for task, resize in members if not resize.refused and not resize.back]
    if not refused and done:
        spec = replace(job.spec, **done[0][1].patch)  # type: ignore[arg-type]
        turn.put_job(replace(job, spec=spec, message=f"resized to {_words(done[0][1].share)}"))
    elif refused and any(resize.restart and resize.restartable for resize in refused):
        spec = replace(job.spec, **refused[0].patch)  # type: ignore[arg-type]
        _start_again(turn, job, spec, refused[0].refused)
    elif refused:
        turn.put_job(replace(job, message=f"not resized: {refused[0].refused}"))
        tasks = [task for task, _ in done]
        if _obstacle(turn, tasks, {task.id: resize.before for task, resize in done})[0]:
            return  # another task has got what they gave back
        for task, resize in done:  # all tasks of a gang have the new size, or all the old one
            _ask(turn, replace(task, resize=_reversed(resize)))


def _settle_withdrawn(turn: Turn, job: Job, members: Sequence[tuple[Task, Resizing]]) -> None:
    """End a withdrawn resize; a task that uses its new memory already may have kept it."""
    stuck = [(task, resize) for task, resize in members if resize.withdrawn and resize.refused]
    if not stuck:
        turn.put_job(replace(job, message="its resize is withdrawn"))
        return
    _, resize = stuck[0]
    spec, words = job.spec, "its resize is only partly withdrawn"
    if all(resize.withdrawn and task.share == resize.before for task, resize in members):
        spec = replace(spec, **resize.patch)  # type: ignore[arg-type]
        words = f"resized to {_words(resize.before)}"
    turn.put_job(replace(job, spec=spec, message=f"{words}: it cannot be undone: {resize.refused}"))


def _words(share: Share) -> str:
    """Return the size of a share, in words."""
    return f"{share.memory_mib} MiB and {share.compute_milli / PER_PERCENT:g} % of each GPU"
