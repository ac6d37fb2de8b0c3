"""Effects of the engine that are one call of the driver each, and calls of executors to channels."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict, MesosGpuError
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.ports import Driver
from mesos_gpu.wire.channel.call import Call, answer_to, encode_call
from mesos_gpu.wire.mesos.notice import encode_notice
from mesos_gpu.wire.mesos.resize import encode_request
from mesos_gpu.wire.mesos.seal import secret_for
from mesos_gpu.wire.mesos.v1 import reset_message, start_message

logger = logging.getLogger("mesos_gpu.scheduler.daemon")


def begin_to_list_tasks(driver: Driver, put: Callable[[ev.Event], None]) -> None:
    """Ask the master for its tasks, on a thread of its own: of a large cluster the answer takes seconds. Without one it
    is asked for again."""

    def ask() -> None:
        try:
            put(ev.TasksListed(tuple(driver.tasks())))
        except MesosGpuError as error:
            logger.warning("the master's tasks are not known, unknown ones are held: %s", error)

    threading.Thread(target=ask, name="list tasks", daemon=True).start()


def begin_to_read_role(driver: Driver, put: Callable[[ev.Event], None]) -> None:
    """Ask the master for the scheduler's roles, on a thread of its own. Without an answer it is asked for again."""

    def ask() -> None:
        try:
            roles = driver.roles()
        except MesosGpuError as error:
            logger.warning("it is not known what Mesos lets its roles have: %s", error)
            return
        for role in roles:
            put(ev.RoleRead(role))

    threading.Thread(target=ask, name="read role", daemon=True).start()


def _acknowledge(driver: Driver, effect: fx.Acknowledge) -> None:
    driver.acknowledge(effect.agent_id, effect.task_id, effect.uuid)


def _decline(driver: Driver, effect: fx.Decline) -> None:
    driver.decline(effect.offer_ids, refuse_s=effect.refuse_s)


def _kill(driver: Driver, effect: fx.Kill) -> None:
    driver.kill(effect.task_id, effect.agent_id, grace_s=effect.grace_s)


def _shutdown(driver: Driver, effect: fx.Shutdown) -> None:
    driver.shutdown(effect.agent_id, effect.executor_id)


def _reconcile(driver: Driver, effect: fx.Reconcile) -> None:
    driver.reconcile(effect.tasks)


def _ask_reset(driver: Driver, effect: fx.AskReset) -> None:
    driver.message(effect.agent_id, effect.executor_id, reset_message(effect.gpu_id, effect.request))


def _start(driver: Driver, effect: fx.Start) -> None:
    driver.message(effect.agent_id, effect.executor_id, start_message())


def _ask_resize(driver: Driver, effect: fx.AskResize) -> None:
    driver.message(effect.agent_id, effect.executor_id, encode_request(effect.resize))


def _give_notice(driver: Driver, effect: fx.GiveNotice) -> None:
    driver.message(
        effect.agent_id, effect.executor_id, encode_notice(effect.notice, effect.left_s, effect.signal)
    )


def _suppress(driver: Driver, effect: fx.Suppress) -> None:
    driver.suppress(effect.roles)


def _revive(driver: Driver, effect: fx.Revive) -> None:
    driver.revive(effect.roles)


MESSAGES: Final[Mapping[type, Callable[[Driver, Any], None]]] = {
    fx.Acknowledge: _acknowledge,
    fx.Decline: _decline,
    fx.Kill: _kill,
    fx.Shutdown: _shutdown,
    fx.Reconcile: _reconcile,
    fx.AskReset: _ask_reset,
    fx.Start: _start,
    fx.AskResize: _ask_resize,
    fx.GiveNotice: _give_notice,
    fx.Suppress: _suppress,
    fx.Revive: _revive,
}


#: What a master is asked; the answer is an event, or there is none.
QUESTIONS: Final[Mapping[type, Callable[[Driver, Callable[[ev.Event], None]], None]]] = {
    fx.ListTasks: begin_to_list_tasks,
    fx.ReadRole: begin_to_read_role,
}


def call_executor(
    driver: Driver, state: State, call: Call, key: bytes, answers: Callable[[str], None]
) -> None:
    """Send the call; `answers` is told before how the executor will prove that it was called.

    Raises:
        Conflict: The task does not run, or an earlier release launched it without a secret.
        Unavailable: The master cannot be reached.
    """
    task = state.work.tasks.get(TaskId(call.task_id))
    if task is None or task.state is not TaskState.RUNNING:
        raise Conflict(f"the task {call.task_id} does not run", remedy="see: mesos-gpu ps")
    if not task.sealed:
        what = f"the task {task.id} was launched by an earlier release, and cannot be joined"
        raise Conflict(what, remedy="start it again")
    secret = secret_for(key, task.id)
    answers(answer_to(call, secret))
    driver.message(task.agent_id, task.executor_id, encode_call(call, secret))
