"""Rules of shared cards, checked by the simulated tasks and by received messages."""

from dataclasses import replace

from mesos_gpu.engine import effects as fx
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.shares.share import Share, larger_of
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.resize import Resize
from mesos_gpu.model.tasks.task import Task
from tests.chaos.account import Account
from tests.chaos.violation import Violation
from tests.chaos.virtual import Agent, Run


def granted(account: Account, task: Task, launch: fx.Launch) -> None:
    """Check the share of a launched task on each of its cards."""
    share = task.share
    assert share is not None, "the task has whole cards"
    spec = account.disk.jobs[task.job_id].spec if task.job_id else None
    if spec is None or share.compute_milli != spec.compute_milli:
        raise Violation("a share is what was asked for", f"{task.id} has {share}", task.id)
    for gpu_id in task.gpus:
        _fits(account, task.id, gpu_id, share)
        covered = any(item.task.covers == gpu_id for item in launch.tasks) or _is_covered(account, gpu_id)
        if not covered:
            raise Violation("no share of a card that nothing holds in Mesos", f"{gpu_id}: {task.id}", task.id)


def may_have(account: Account, task: Task, wanted: Resize) -> None:
    """Check the new share of a running task that a resize requests."""
    launched = task.share
    assert launched is not None, "only shares are resized"
    share = replace(
        launched,
        memory_mib=wanted.memory_mib,
        memory_max_mib=wanted.memory_max_mib,
        compute_milli=wanted.compute_milli,
    )
    for gpu_id in task.gpus:
        _fits(account, task.id, gpu_id, share)


def counted_milli(account: Account, task: Task, spec: JobSpec) -> int:
    """Return the thousandths of GPUs that a task counts for limits: the largest of its present and requested size."""
    if task.share is None:
        return spec.counted_milli
    run, asked = account.mesos.runs.get(task.id), account.asked.get(task.id)
    sizes = [spec.gpu_milli if spec.gpu_milli < WHOLE else 0]
    for gpu_id in task.gpus:
        truly = run.agent.shares.get(gpu_id, {}).get(task.id) if run else None
        sizes.append(truly.compute_milli if truly else task.share.compute_milli)
    if asked is not None and (run is None or run.resized is None or run.resized.number < asked.number):
        sizes.append(asked.compute_milli)
    return spec.gpus * max(sizes)


def _fits(account: Account, task_id: TaskId, gpu_id: GpuId, share: Share) -> None:
    card = next(gpu for agent in account.mesos.agents.values() for gpu in agent.gpus if gpu.id == gpu_id)
    others = [
        (run.id, _share(account, run, gpu_id)) for run in _tenants(account, gpu_id) if run.id != task_id
    ]
    every = [share, *(other for _, other in others if other is not None)]
    who = [str(other) for other, _ in others]
    if any(other is None for _, other in others):
        raise Violation("no GPU is granted twice", f"{gpu_id}: {task_id} beside {who}", task_id, *who)
    if card.sharing is None:
        raise Violation("only what can be shared is", f"{task_id} has a share of {gpu_id}", task_id)
    memory_mib = sum(each.memory_mib for each in every)
    if memory_mib > card.sharing.memory_mib or sum(each.compute_milli for each in every) > WHOLE:
        words = f"{gpu_id} has {card.sharing.memory_mib} MiB: {every}"
        raise Violation("never more is granted of a card than there is", words, task_id, *who)
    if len({(each.method, each.domain) for each in every}) > 1:
        raise Violation(
            "a card is shared in one way, by authorized users", f"{gpu_id}: {every}", task_id, *who
        )


def _share(account: Account, run: Run, gpu_id: GpuId) -> Share | None:
    """Return the larger of the present and the requested share of a task on a card; None if it has the whole card."""
    known, launched = account.disk.tasks.get(run.id), run.item.task.share
    if launched is None:
        return None
    truly = run.agent.shares.get(gpu_id, {}).get(run.id, launched)
    promised = known.counted_share if known else None
    return larger_of(truly, promised) if promised else truly


def _tenants(account: Account, gpu_id: GpuId) -> list[Run]:
    return [run for run in account.mesos.alive() if gpu_id in run.item.task.gpus]


def _is_covered(account: Account, gpu_id: GpuId) -> bool:
    """Return whether a cover task of a card was launched, and neither killed nor reported as ended."""
    covers = (task for task in account.disk.tasks.values() if task.covers == gpu_id)
    return any(task.kill_sent_at is None and not _ended(account, task) for task in covers)


def _ended(account: Account, task: Task) -> bool:
    """Return whether the end of a task was reported; false for a task that was saved and not launched."""
    word = account.words.get(task.id)
    return word is not None and bool(word.ended)


def unused(account: Account, task: Task, gpu_id: GpuId) -> None:
    """Check that no task has a share of the card whose cover task is killed."""
    for other in account.disk.tasks.values():
        if gpu_id in other.gpus and not (_ended(account, other) or account.is_replaced(other.id)):
            words = f"{task.id} is killed while {other.id} has a share of {gpu_id}"
            raise Violation("a card is held while it is shared", words, task.id, other.id)


def joined(account: Account, task: Task) -> None:
    """Check that cover tasks of an executor have one ExecutorInfo, and that a card has one cover task."""
    for other in account.disk.tasks.values():
        if other.id == task.id or other.covers is None:
            continue
        if other.covers == task.covers and not _ended(account, other):
            raise Violation("one task holds a card", f"{task.id} beside {other.id}", task.id, other.id)
        if other.executor_id == task.executor_id and other.keeper != task.keeper:
            words = f"{task.id} and {other.id} differ in it"
            raise Violation("a keeper has one ExecutorInfo", words, task.id, other.id)


def counted(account: Account) -> None:
    """Check that Mesos counts each card in use, except shared cards whose cover task has just ended."""
    for agent in account.mesos.agents.values():
        runs = [run for run in account.mesos.alive() if run.agent is agent]
        whole = {gpu for run in runs if run.item.task.share is None for gpu in run.item.task.gpus}
        shared = {gpu for run in runs if run.item.task.share is not None for gpu in run.item.task.gpus}
        bare = shared - {run.item.task.covers for run in runs}
        _in_mesos(agent, len(whole) + len(shared), len(bare))


def _in_mesos(agent: Agent, cards: int, bare: int) -> None:
    if cards + agent.others > len(agent.gpus) + bare:
        words = f"{cards} cards of {agent.id} are used, others have {agent.others:g} of {len(agent.gpus)}"
        raise Violation("Mesos knows of each card that is used", words, str(agent.id))
