"""Main loop of the executor of one task: claim the GPUs, run the command, report its end, release the claim.

Threads post events into one queue; one loop passes them to the table (`life`) and carries out the actions. An
executor starts for every task, so it stays lean: it imports only the standard library and plain data classes.
"""

import os
import signal
import sys
import threading
import time
from _queue import Empty, SimpleQueue
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from isolator.agent.agent_api import TERMINAL, Connection, Settings
from isolator.executor.life import TABLE, Action, Effect, Event, Kind, Life, Refused, State, step
from isolator.executor.upkeep import drop_mark
from isolator.executor.verdicts import failure, log
from isolator.executor.work import Work
from isolator.gpus.ledger import Ledger
from isolator.host import processes
from isolator.host.not_started import NotStarted
from isolator.host.sandbox import Sandbox
from isolator.runs.gang import may_start
from isolator.runs.launcher import Launcher
from isolator.runs.run import container_of, sandbox_of
from mesos_gpu import __version__
from mesos_gpu.wire.hosts.program import encode_program
from mesos_gpu.wire.mesos import assignment as wire

if TYPE_CHECKING:  # deferred: only tasks with health checks need it, and each import slows the start
    from isolator.executor.checks import Checker

LOG: Final = "executor.log"  # in the sandbox, as stdout and stderr belong to the task
STDERR: Final = 2  # stderr of the container, whose file the task gets
DEATH_S: Final = 10.0  # time after SIGKILL for which the end of the command is awaited
LAST_S: Final = 25.0  # time, beyond the grace period, for ending and undoing a task whose processes hang
MAX_WAIT_S: Final = 3600.0  # most time of one wait; a timer may be due later than a wait can last


class Executor:
    """`Handler` of the agent's events, with the main loop of the executor.

    Args:
        settings: Connection settings from Mesos.
        ledger: The ledger of this host.
        env: Environment of the executor.
        launcher: Process that becomes the task, or fetches for it.
    """

    def __init__(
        self, settings: Settings, ledger: Ledger, env: Mapping[str, str], launcher: Launcher
    ) -> None:
        self._ledger, self._env, self._launcher = ledger, env, launcher
        self._shutdown_grace_s = max(settings.shutdown_grace_s - 1.0, 0.0)
        self._connection = Connection(settings, self)
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._life = Life()
        self._timers: dict[Kind, float] = {}  # time when each timer is due, on the monotonic clock
        self._work: Work | None = None
        self._checker: Checker | None = None
        self._introduced = False  # whether a status update has described this executor

    def run(self) -> int:
        """Run until the last update is acknowledged, or the agent is gone and the task has ended; return the
        exit code.
        """
        threading.Thread(target=self._converse, daemon=True).start()
        try:
            while self._life.state is not State.DONE:
                self._life, effects = step(self._life, self._next())
                for effect in effects:
                    self._carry_out(effect)
            return self._life.exit_code
        finally:
            try:
                self._connection.finish()
            finally:
                processes.kill_descendants()
                if self._work is not None:
                    self._work.seal()

    # --- events of the agent, on any thread, also in a signal's handler

    def launch(self, task: Mapping[str, Any]) -> None:
        """Start a task, as `Handler.launch`."""
        self._events.put(Event(Kind.LAUNCH, str(task["task_id"]["value"]), payload=task))

    def kill(self, task_id: str, grace_s: float | None) -> None:
        """Kill a task, as `Handler.kill`."""
        self._events.put(Event(Kind.KILL, task_id, grace_s=grace_s))

    def shutdown(self) -> None:
        """End the task and exit, as the agent requires within its grace period, after which it kills the
        executor.
        """
        self._events.put(Event(Kind.SHUTDOWN, grace_s=self._shutdown_grace_s))

    def acknowledged(self, task_id: str, state: str) -> None:
        """Note that the agent has acknowledged the last update, as `Handler.acknowledged`."""
        if state in TERMINAL:
            self._events.put(Event(Kind.ACKNOWLEDGED, task_id))

    def message(self, data: bytes) -> None:
        """Handle a scheduler message, as `Handler.message`.

        It is the start signal of a gang, a new size of the share, a notice of the task's end, or a session
        for the task.
        """
        if may_start(data):
            self._events.put(Event(Kind.GO))
        elif b'"resize"' in data:
            self._events.put(Event(Kind.RESIZE, payload=data))
        elif b'"notice"' in data:
            self._events.put(Event(Kind.NOTICE, payload=data))
        elif b'"channel"' in data:
            self._events.put(Event(Kind.CHANNEL, payload=data))

    # --- other threads

    def _converse(self) -> None:
        """Talk to the agent until the connection ends; post GONE."""
        code = 1
        try:
            code = self._connection.run()
        except Exception as error:  # noqa: BLE001 - any error: the task must not run on without a connection
            log(f"the connection to the agent failed: {failure(error).message}")
        self._events.put(Event(Kind.GONE, exit_code=code))

    def _aside(self, *steps: Callable[[], None]) -> None:
        """Carry out steps on a thread of their own; an error is posted as an event, and skips the rest."""
        threading.Thread(target=self._take, args=steps, daemon=True).start()

    def _aside_if_possible(self, way_out: Callable[[], None]) -> None:
        """Carry out a step that must not fail on a thread, or in this one if no thread can be started."""
        try:
            self._aside(way_out)
        except RuntimeError:
            self._take(way_out)

    def _abort(self, cut_short: Callable[[], None]) -> None:
        """Cut short a step, which posts its event as usual; on a thread, as an agent may be slow to answer."""
        try:
            threading.Thread(target=cut_short, daemon=True).start()
        except RuntimeError as error:
            log(f"the step at work cannot be cut short: {error}")

    def _take(self, *steps: Callable[[], None]) -> None:
        try:
            for take in steps:
                take()
        except Exception as error:  # noqa: BLE001 - without an event the task would never end
            kind = Kind.NOT_STARTED if isinstance(error, NotStarted) else Kind.BROKEN
            self._events.put(Event(kind, verdict=failure(error)))

    # --- the loop

    def _next(self) -> Event:
        """Return the next event; events in the queue precede timers that are due."""
        while True:
            kind = min(self._timers, key=self._timers.__getitem__, default=None)
            left_s = None if kind is None else self._timers[kind] - time.monotonic()
            try:
                return self._events.get(timeout=None if left_s is None else min(max(left_s, 0.0), MAX_WAIT_S))
            except Empty:
                if kind is not None and self._timers[kind] <= time.monotonic():
                    del self._timers[kind]
                    return Event(kind)

    def _carry_out(self, effect: Effect) -> None:
        try:
            DO[effect.action](self, effect)
        except Exception as error:  # noqa: BLE001 - any error ends the task, and the loop goes on
            verdict = failure(error)
            # no update can be sent: the agent reports that the executor has ended
            if effect.action is Action.SAY_END:
                log(f"the end of the task could not be reported: {verdict.message}")
                self._events.put(Event(Kind.GONE, exit_code=1))
                return
            self._events.put(Event(Kind.BROKEN, verdict=verdict))

    def _prepare(self, effect: Effect) -> None:
        self._work = Work(
            effect.event.payload,
            self._env,
            ledger=self._ledger,
            launcher=self._launcher,
            connection=self._connection,
            post=self._events.put,
        )
        self._aside(self._work.prepare)

    @property
    def _prepared_work(self) -> Work:
        """Work on the task; `_prepare` must have been called."""
        assert self._work is not None
        return self._work

    def _check(self, effect: Effect) -> None:
        self._checker = effect.event.payload
        self._checker.start()

    def _terminate(self, effect: Effect) -> None:
        end, checker = effect.life.end, self._checker
        assert end is not None
        self._aside_if_possible(lambda: self._prepared_work.terminate(end.grace_s, checker))

    def _undo(self, effect: Effect) -> None:
        """Undo what was made for the task."""
        if self._work is None:  # the work could not be set up, so nothing was made
            self._events.put(Event(Kind.UNDONE))
            return
        checker = self._checker
        self._aside_if_possible(lambda: self._prepared_work.undo(checker))

    def _say_begun(self, effect: Effect, state: str) -> None:
        """Send an update; the first one also describes this executor."""
        data = b"" if self._introduced else encode_program(__version__, **self._prepared_work.introduction())
        self._introduced = True
        self._connection.update(effect.life.task_id, state, data=data)

    def _say_health(self, effect: Effect) -> None:
        self._connection.update(
            effect.life.task_id,
            "TASK_RUNNING",
            message=effect.event.message,
            healthy=effect.event.healthy,
            reason="REASON_TASK_HEALTH_CHECK_STATUS_UPDATED",
        )

    def _say_data(self, effect: Effect, state: str = "TASK_RUNNING") -> None:
        self._connection.update(
            effect.life.task_id,
            state,
            message=effect.event.message,
            data=effect.event.payload,
            healthy=effect.life.healthy,
        )

    def _say_killing(self, effect: Effect) -> None:
        assert effect.life.end is not None
        self._connection.update(effect.life.task_id, "TASK_KILLING", message=effect.life.end.message)

    def _say_end(self, effect: Effect) -> None:
        life = effect.life
        assert life.verdict is not None
        state, message, outcome = life.verdict
        log(f"{state}: {message}")
        self._connection.update(
            life.task_id, state, message=message, data=wire.encode(outcome), healthy=life.healthy
        )

    def _limit(self, kind: Kind, after_s: float | None) -> None:
        if after_s is not None:
            self._timers[kind] = time.monotonic() + after_s


def refusal(effect: Effect) -> str:
    """Return the log line for an event that should not have come."""
    pair = TABLE[effect.life.state, effect.event.kind]
    assert isinstance(pair, Refused)
    return f"{effect.event.kind.value} while {effect.life.state.value}: {pair.why}"


DO: Final[Mapping[Action, Callable[[Executor, Effect], None]]] = {
    Action.PREPARE: Executor._prepare,
    Action.FETCH: lambda self, _: self._aside(self._prepared_work.fetch),
    Action.START: lambda self, _: self._aside(self._prepared_work.start, self._prepared_work.watch),
    Action.ABORT_FETCH: lambda self, _: self._abort(self._prepared_work.abort_fetch),
    Action.ABORT_START: lambda self, _: self._abort(self._prepared_work.abort_start),
    Action.CHECK: Executor._check,
    Action.DISMISS_CHECKS: lambda _, effect: effect.event.payload.stop(),
    Action.TERMINATE: Executor._terminate,
    Action.UNDO: Executor._undo,
    Action.SAY_STARTING: lambda self, effect: self._say_begun(effect, "TASK_STARTING"),
    Action.SAY_RUNNING: lambda self, effect: self._say_begun(effect, "TASK_RUNNING"),
    Action.SAY_HEALTH: Executor._say_health,
    Action.RESIZE: lambda self, effect: self._aside_if_possible(
        lambda: self._prepared_work.resize(effect.event.payload)
    ),
    Action.SAY_RESIZED: Executor._say_data,
    Action.NOTICE: lambda self, effect: self._aside_if_possible(
        lambda: self._prepared_work.notice(effect.event.payload)
    ),
    Action.SAY_NOTICED: Executor._say_data,
    Action.SAY_LISTENING: Executor._say_data,
    Action.SAY_CHECKED: Executor._say_data,
    Action.OPEN_CHANNEL: lambda self, effect: self._aside_if_possible(
        lambda: self._prepared_work.open_channel(effect.event.payload)
    ),
    Action.SAY_CHECKPOINT: lambda self, effect: self._say_data(
        effect, "TASK_RUNNING" if effect.life.state is State.RUNNING else "TASK_KILLING"
    ),
    Action.SAY_KILLING: Executor._say_killing,
    Action.SAY_END: Executor._say_end,
    Action.REFUSE_TASK: lambda self, effect: self._connection.update(
        effect.event.task_id, "TASK_FAILED", message="an executor runs one task only"
    ),
    Action.LIMIT_TIME: lambda self, effect: self._limit(Kind.TIMED_OUT, effect.life.terms.timeout_s),
    Action.LIMIT_DYING: lambda self, _: self._limit(Kind.DEATH_OVERDUE, DEATH_S),
    Action.LIMIT_STAY: lambda self, effect: self._limit(
        Kind.OVERDUE, LAST_S + (effect.life.end.grace_s if effect.life.end is not None else 0.0)
    ),
    Action.LEAVE: lambda self, _: self._connection.finish(),
    Action.COMPLAIN: lambda _, effect: log(refusal(effect)),
}
assert len(DO) == len(Action), "each action is carried out"


def main() -> int:
    """Run as an executor of Mesos, with all settings in the environment; return the exit code."""
    env = dict(os.environ)
    settings = Settings.from_environment(env)
    with Sandbox(sandbox_of(env)) as place:
        # Not closed while the process lives.
        sys.stderr = os.fdopen(place.append(LOG), "a", errors="backslashreplace")
    drop_mark(STDERR)
    processes.become_subreaper()
    launcher = Launcher.fork()
    ledger = Ledger()
    # held as long as this process lives: it marks the executor as alive
    lock = ledger.lock(container_of(env))
    executor = Executor(settings, ledger, env, launcher)
    for number in (signal.SIGTERM, signal.SIGINT):
        # SimpleQueue.put is reentrant, so a signal may interrupt another put
        signal.signal(number, lambda *_: executor.shutdown())
    try:
        return executor.run()
    finally:
        os.close(lock)
