"""Execution of all effects but saves, by the driver and the secret store; calls to executors for channels."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mesos_gpu.adapters.secrets.deliveries import Deliveries, Sealed
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.complete import see_complete
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict, MesosGpuError
from mesos_gpu.model import saves
from mesos_gpu.model.ids import OfferId, TaskId
from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.policy.apps.shown_check import shown_check
from mesos_gpu.ports import Driver, SecretStore
from mesos_gpu.scheduler.control import ClusterPorts
from mesos_gpu.scheduler.launches import to_task_info
from mesos_gpu.wire.channel.call import Call, answer_to, encode_call
from mesos_gpu.wire.mesos.notice import encode_notice
from mesos_gpu.wire.mesos.resize import encode_request
from mesos_gpu.wire.mesos.seal import secret_for
from mesos_gpu.wire.mesos.v1 import removal_message, reset_message, resources_to_json, start_message

_NO_STORE: Final = "the scheduler no longer has a secret store"
logger = logging.getLogger("mesos_gpu.scheduler.daemon")


def begin_to_list_tasks(driver: Driver, put: Callable[[ev.Event], None]) -> None:
    """Request the master's tasks on a thread, since a large cluster takes seconds; without an answer it is repeated."""

    def ask() -> None:
        try:
            put(ev.TasksListed(tuple(driver.tasks())))
        except MesosGpuError as error:
            logger.warning(
                "the list of tasks could not be read from the master, trying again; unknown tasks stay held: %s",
                error,
            )

    threading.Thread(target=ask, name="list tasks", daemon=True).start()


def begin_to_read_role(driver: Driver, put: Callable[[ev.Event], None]) -> None:
    """Request the scheduler's roles from the master on a thread; without an answer it is repeated."""

    def ask() -> None:
        try:
            roles = driver.roles()
        except MesosGpuError as error:
            logger.warning(
                "quotas and weights of the roles could not be read from the master, trying again: %s", error
            )
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


def _ask_removal(driver: Driver, effect: fx.AskRemoval) -> None:
    driver.message(effect.agent_id, effect.executor_id, removal_message(effect.volumes))


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
    fx.AskRemoval: _ask_removal,
    fx.Start: _start,
    fx.AskResize: _ask_resize,
    fx.GiveNotice: _give_notice,
    fx.Suppress: _suppress,
    fx.Revive: _revive,
}


#: Requests to the master; an answer becomes an event.
QUESTIONS: Final[Mapping[type, Callable[[Driver, Callable[[ev.Event], None]], None]]] = {
    fx.ListTasks: begin_to_list_tasks,
    fx.ReadRole: begin_to_read_role,
}


def call_executor(
    driver: Driver, state: State, call: Call, key: bytes, answers: Callable[[str], None]
) -> None:
    """Send a call to a task's executor; `answers` first receives the proof that the executor will show.

    Raises:
        Conflict: The task does not run, or was launched without a secret by an earlier release.
        Unavailable: The master cannot be reached.
    """
    task = state.work.tasks.get(TaskId(call.task_id))
    if task is None or task.state is not TaskState.RUNNING:
        raise Conflict(f"task {call.task_id} is not running", remedy="list running jobs with mesos-gpu ps")
    if not task.sealed:
        what = f"task {task.id} was launched by an earlier release, whose tasks cannot be joined"
        raise Conflict(what, remedy="restart the job")
    secret = secret_for(key, task.id)
    answers(answer_to(call, secret))
    driver.message(task.agent_id, task.executor_id, encode_call(call, secret))


class Calls:
    """Executor of the engine's calls to Mesos and the secret store; only for the engine's thread.

    `look_at` must be called before the first call.

    Args:
        driver: Driver that sends calls to the master.
        settings: Settings of the engine.
        key: Key from which launch secrets are derived.
        secrets: Store of jobs' secrets; None without one.
        put: Function that gives the engine an event.
        publish: Function that reports a change of a job to listeners.
    """

    def __init__(
        self,
        driver: Driver,
        settings: Settings,
        key: bytes,
        secrets: SecretStore | None,
        put: Callable[[ev.Event], None],
        publish: Callable[[fx.Publish], None],
    ) -> None:
        self._driver, self._settings, self._key, self._put = driver, settings, key, put
        self._publish = publish
        self._deliveries = Deliveries(secrets, put) if secrets is not None else None
        self._owed: list[OfferId] = []  # offers whose ACCEPT or DECLINE did not reach the master

    def look_at(self, state: State, ports: ClusterPorts) -> None:
        """Use this state and these control ports from now on."""
        self._state, self._ports = state, ports

    def close(self) -> None:
        """Stop the delivery of secrets."""
        if self._deliveries is not None:
            self._deliveries.close()

    def make(self, effects: Iterable[fx.Effect]) -> None:
        """Execute effects in order, except saves."""
        for effect in effects:
            if not isinstance(effect, saves.Save):
                self._make(effect)

    def _make(self, effect: fx.Effect) -> None:
        try:
            _HANDLERS[type(effect)](self, effect)
        except MesosGpuError as error:
            if not isinstance(effect, fx.Call):
                raise
            # Not lost: reconciliation, repeated kills and Mesos' resends cause it again; offers are declined later.
            logger.warning(
                "%s could not be sent to Mesos, and is repeated: %s", type(effect).__name__, error.what
            )
            if isinstance(effect, fx.Launch | fx.Decline):
                self._owed += effect.offer_ids

    def void_owed(self) -> None:
        """Forget unanswered offers: a new subscription makes them void."""
        self._owed.clear()

    def give_back_owed(self) -> None:
        """Decline offers whose answer did not reach the master, which would otherwise reserve them for ever.

        The master ignores offers that it already has an answer for.
        """
        if not self._owed or not self._state.mesos.connected:
            return
        try:
            self._driver.decline(self._owed, refuse_s=0.0)
            self._owed.clear()
        except MesosGpuError as error:
            logger.warning("offers could not be returned to the master, trying again: %s", error.what)

    def _disbelieve(self, effect: fx.Disbelieve) -> None:
        logger.warning(
            "status %s of task %s is ignored because it cannot be trusted: %s",
            effect.state,
            effect.task_id,
            effect.why,
        )

    def _send(self, effect: fx.Call) -> None:
        MESSAGES[type(effect)](self._driver, effect)

    def _ask(self, effect: Any) -> None:
        QUESTIONS[type(effect)](self._driver, self._put)

    def _launch(self, effect: fx.Launch) -> None:
        """Accept offers with the tasks of a launch."""
        ports = self._ports.now()
        infos = [
            to_task_info(
                task,
                self._settings,
                control_ports=ports,
                key=self._key,
                sealed=self._sealed(task),
                check=self._check(task),
            )
            for task in effect.tasks
        ]
        self._driver.accept(
            effect.offer_ids,
            infos,
            refuse_s=0.0,
            reserve=resources_to_json(effect.reserve),
            unreserve=resources_to_json(effect.unreserve),
        )

    def _check(self, launch: fx.LaunchTask) -> HealthCheck | None:
        """Return the check of a task's app whose result is only displayed."""
        versions = self._state.apps.app_versions.get(launch.spec.app or "", ()) if launch.spec else ()
        app = next((version.app for version in versions if version.version == launch.app_version), None)
        return shown_check(app) if app is not None else None

    def _sealed(self, launch: fx.LaunchTask) -> Sealed:
        """Return the sealed secrets of a task; empty if it needs none."""
        if launch.spec is None or not (launch.spec.secrets or launch.image_secret):
            return Sealed()
        if self._deliveries is None:
            return Sealed(problem=_NO_STORE)
        return self._deliveries.sealed(launch, self._state.cluster.nodes.get(launch.task.agent_id))

    def _read_secrets(self, effect: fx.ReadSecrets) -> None:
        if self._deliveries is not None:
            self._deliveries.read(effect.sources)
            return
        why = f"{_NO_STORE}: restart it with --secrets-dir or --vault-url"
        self._put(ev.SecretsRead(dict.fromkeys(effect.sources, why)))

    def _forget_secrets(self, effect: fx.ForgetSecrets) -> None:
        if self._deliveries is not None:
            self._deliveries.forget(effect.sources)


_HANDLERS: Final[Mapping[type, Callable[[Calls, Any], None]]] = {
    **dict.fromkeys(MESSAGES, Calls._send),
    fx.Launch: Calls._launch,
    **dict.fromkeys(QUESTIONS, Calls._ask),
    fx.Publish: lambda calls, effect: calls._publish(effect),
    fx.Disbelieve: Calls._disbelieve,
    fx.ReadSecrets: Calls._read_secrets,
    fx.ForgetSecrets: Calls._forget_secrets,
}
see_complete("scheduler.messages._HANDLERS", _HANDLERS, fx.DONE_OUTSIDE)
