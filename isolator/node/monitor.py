"""Node monitor: a Mesos task that reports the GPUs of its host, and their health, to the scheduler.

It is its own executor. Each report is a TASK_RUNNING whose data is the inventory: reliable, acknowledged, and
in order, like every status update.
"""

import base64
import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from isolator.agent.agent_api import TERMINAL, Connection, Settings
from isolator.devices.facts import isolation_name, write_inventory
from isolator.gpus import driver_volume
from isolator.gpus.cards import Cards, taken_up
from isolator.gpus.ledger import Ledger, Owner, Refused, Stale
from isolator.gpus.probing import DEADLINE_S, RECHECK_S, ChildProbe
from isolator.host import control_ports
from isolator.node.program import Started
from isolator.node.reaper import Reaping, audit, strangers
from isolator.node.use import Counts, Uses
from isolator.node.whose import ticks_now
from isolator.persistent.removal import Removal
from isolator.runs.run import sandbox_of
from isolator.secrets.exposure import with_key
from isolator.shares.abilities import Abilities
from isolator.shares.shim.ability import libraries
from isolator.shares.watch import LOOK_S as WATCH_S
from isolator.shares.watch import Watch, slack_from
from isolator.shares.widening import LOOK_S as WIDEN_S
from isolator.shares.widening import IdleLending
from mesos_gpu.adapters.files import log_lines
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.nodes.health import Survey
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.policy.gpus.health import HealthSettings, tiers_from
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.channel.call import MARK
from mesos_gpu.wire.mesos import report
from mesos_gpu.wire.mesos.seal import secret_in

if TYPE_CHECKING:  # deferred: their modules import much that only a scheduler needs
    from mesos_gpu.adapters.simulated.use import Holder
    from mesos_gpu.ports import GpuProbe

LOOK_S: Final = 0.5  # pause between two questions to the probe whether something changed
DEFAULT_INTERVAL_S: Final = 10.0
LOOKS_PER_RECHECK: Final = 10
#: Most sessions at once that read sandboxes of ended tasks. Each has two processes of some 10 MiB in this
#: container, of 96 MiB; with more, Mesos would end the monitor.
SESSIONS: Final = 2
logger = logging.getLogger("isolator.monitor")


class Monitor:
    """`Handler` of the agent's events for the monitor.

    Args:
        settings: Connection settings from Mesos.
        probe: Probe of the GPUs.
        ledger: The ledger of this host.
        health: Rules for the health of cards. By default the standard ones.
        abilities: Probe of the sharing abilities. By default by this process' environment.
    """

    def __init__(
        self,
        settings: Settings,
        probe: "GpuProbe",
        ledger: Ledger,
        health: HealthSettings | None = None,
        abilities: Abilities | None = None,
    ) -> None:
        self._probe, self._ledger = probe, ledger
        self._health = health or HealthSettings()
        self._connection = Connection(settings, self)
        self._task_id: str | None = None
        self._secret = ""  # secret of the monitor's own launch
        self._sessions = threading.BoundedSemaphore(SESSIONS)
        self._lock = threading.Lock()  # keeps a report from following the last update
        self._stop = threading.Event()
        self._wake = threading.Event()
        # held during a survey or a reset, which both use the probe and the cards
        self._probing = threading.Lock()
        self._cards = Cards(ledger.directory / "health.json", self._health)
        self._abilities = abilities or Abilities(os.environ)
        self._watch = Watch(ledger, os.environ)
        self._counts = Counts(ledger)
        self._used: Uses = (), ()
        self._widening = IdleLending(ledger)
        self._reaping = Reaping(ledger)
        self._program = Started(time.monotonic)
        self._removal = Removal(os.environ)
        self._looked = Survey()  # last successful survey
        self._volume = driver_volume.Keeper(os.environ, ledger, lambda: libraries(os.environ))
        self._known = Inventory()
        self._failure = ""  # why the last probe failed

    def run(self) -> int:
        """Run until killed; return the exit code."""
        return self._connection.run()

    def launch(self, task: Mapping[str, Any]) -> None:
        """Start the reports."""
        if self._task_id is not None:
            self._connection.update(
                task["task_id"]["value"], "TASK_FAILED", message="a monitor runs one task only"
            )
            return
        self._task_id = str(task["task_id"]["value"])
        data = base64.b64decode(task.get("data", ""))
        self._secret = secret_in(data)
        try:
            interval_s = interval_from(data, os.environ)
        except ValueError as error:
            self._stop.set()
            self._connection.update(self._task_id, "TASK_FAILED", message=str(error))
            return
        threading.Thread(target=self._report, args=(interval_s,), daemon=True).start()
        threading.Thread(target=self._widen, daemon=True).start()

    def kill(self, task_id: str, grace_s: float | None) -> None:
        """End at once, as nothing must be waited for."""
        if task_id == self._task_id:
            self._end("killed on request")

    def shutdown(self) -> None:
        """Exit, as the agent requests; no last update is expected."""
        self._stop.set()
        self._wake.set()
        self._connection.finish()

    def acknowledged(self, task_id: str, state: str) -> None:
        """Exit after the last update was acknowledged."""
        if state in TERMINAL:
            self._connection.finish()

    def message(self, data: bytes) -> None:
        """Handle a scheduler message: {"reset": UUID, "request": ID}, {"remove_volumes": [ID]}, or a request
        to open a session.

        A session reads an ended task's sandbox.
        """
        if MARK in data:
            threading.Thread(target=self._read_kept, args=(data,), daemon=True).start()
            return
        try:
            value = parsed(data)
            if (volumes := value.get("remove_volumes")) is not None:
                self._removal.begin([str(each) for each in volumes])
                return
            gpu, request = value["reset"], value["request"]
            if not (isinstance(gpu, str) and isinstance(request, str) and request):
                raise ValueError("reset and request must be strings")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.error("ignored a message of the scheduler that is not valid: %r: %s", data[:200], error)
            return
        threading.Thread(target=self._reset, args=(GpuId(gpu), request), daemon=True).start()

    def _read_kept(self, data: bytes) -> None:
        from isolator.session.opening import open_kept

        own = sandbox_of(os.environ)
        logger.info(
            "%s", open_kept(data, self._secret, self._task_id or "", own, self._ledger, self._sessions)
        )

    def _end(self, message: str) -> None:
        with self._lock:
            if self._task_id is not None and not self._stop.is_set():
                self._stop.set()
                self._connection.update(self._task_id, "TASK_KILLED", message=message)

    def _report(self, interval_s: float) -> None:
        try:
            self._report_until_stopped(interval_s)
        finally:
            # an error ended the reports: exit, so that Mesos reports the monitor as lost
            if not self._stop.is_set():
                self._connection.finish()

    def _widen(self) -> None:
        """Let busy shares use the time of idle ones; without this thread each has only its own."""
        last_error = ""
        while not self._stop.wait(WIDEN_S):
            try:
                self._widening.look()
                last_error = ""
            # Any error: the thread must not end, or busy tasks would lose the unused time of idle ones.
            except Exception as error:
                if str(error) != last_error:
                    logger.error(
                        "cannot give the time of idle shares to busy ones (retrying): %s",
                        error,
                        exc_info=not isinstance(error, MesosGpuError | OSError),
                    )
                last_error = str(error)

    def _report_until_stopped(self, interval_s: float) -> None:
        """Look at the host and report, at the interval or as soon as something has changed."""
        last: Inventory | None = None
        look_at = due = 0.0
        while not self._stop.is_set():
            self._wake.clear()
            now = time.monotonic()
            if now >= look_at or self._probe.changed():
                self._reaping.look()
                self._look()
                look_at = time.monotonic() + min(interval_s, self._pace_s())
            if (now >= due or _without_use(self._known) != last) and self._sent():
                last, due = _without_use(self._known), time.monotonic() + interval_s
            self._wake.wait(min(LOOK_S, interval_s))

    def _pace_s(self) -> float:
        """Return the pause between looks: short while a card recovers, shares are watched, or the driver
        volume is built.
        """
        if self._known.volume_problem == driver_volume.AT_WORK:
            return LOOK_S
        watch_s = WATCH_S if self._known.uses else math.inf
        recheck_s = (
            max(LOOK_S, self._health.recheck_s / LOOKS_PER_RECHECK) if self._cards.restless() else math.inf
        )
        return min(watch_s, recheck_s)

    def _sent(self) -> bool:
        """Send the inventory; return False if an earlier report still waits.

        So an agent that was away gets the newest report next, and not a backlog of old ones.
        """
        assert self._task_id is not None
        with self._lock:
            if self._stop.is_set() or self._connection.waiting():
                return False
            self._connection.update(
                self._task_id, "TASK_RUNNING", message=self._summary(), data=report.encode(self._known)
            )
            return True

    def _look(self) -> None:
        """Read all cards, unless one is being reset; after a failed probe none is schedulable."""
        if not self._probing.acquire(blocking=False):
            return
        try:
            self._survey()
            self._known = self._inventory()
            write_inventory(self._ledger.directory, replace(_without_use(self._known), uses=(), program=None))
        except OSError as error:
            logger.error("the inventory for this host's executors cannot be written: %s", error)
        finally:
            self._probing.release()
        self._audit()

    def _inventory(self) -> Inventory:
        inventory = self._cards.inventory(self._isolation())
        ports = "off" if control_ports.is_off(os.environ) else "denied"
        gpu_uses, task_uses = self._used
        full = replace(
            inventory,
            control_ports=ports,
            uses=self._uses(),
            gpu_uses=gpu_uses,
            task_uses=task_uses,
            program=self._program.look(),
            volumes=self._removal.look(),
        )
        return with_key(
            self._abilities.completed(self._volume.look(full)), self._ledger.directory, os.environ
        )

    def _uses(self) -> tuple[ShareUse, ...]:
        """Return the use of shares by tasks; empty if it cannot be read."""
        try:
            return self._watch.look(self._looked.readings)
        except (MesosGpuError, OSError) as error:
            logger.error("the use of shares cannot be read: %s", error)
            return ()

    def _uses_of_cards(self, began_ticks: int) -> Uses:
        """Return the use of cards, in total and by task; empty if it cannot be read."""
        try:
            return self._counts.look(self._looked.readings, began_ticks)
        except (MesosGpuError, OSError) as error:
            logger.error("the use of the GPUs cannot be read: %s", error)
            return (), ()

    def _survey(self) -> None:
        """Read all cards, with the processes on them that belong to no task."""
        began_ticks = ticks_now()
        try:
            survey = self._probe.survey()
        except Exception as error:  # a driver may raise anything, and the last report must not stay valid
            self._failure = error.what if isinstance(error, MesosGpuError) else repr(error)
            logger.warning(
                "the GPUs could not be read: %s", error, exc_info=not isinstance(error, MesosGpuError)
            )
            self._cards.failed(self._failure, time.time())
            self._looked, self._used = Survey(), ((), ())
            return
        self._failure, self._looked = "", survey
        self._cards.surveyed(survey, self._strangers(survey, began_ticks), time.time())
        self._used = self._uses_of_cards(began_ticks)

    def _strangers(self, survey: Survey, began_ticks: int) -> dict[GpuId, str]:
        pids = {reading.gpu.id: reading.pids or () for reading in survey.readings}
        try:
            return strangers(self._ledger, pids, began_ticks)
        except (MesosGpuError, OSError) as error:  # no executor can claim cards without the ledger
            logger.error("processes on the GPUs cannot be checked: %s", error)
            return {}

    def _isolation(self) -> str:
        try:
            return isolation_name()
        except MesosGpuError as error:  # executors cannot start tasks either
            logger.error("%s", error)
            return ""

    def _audit(self) -> None:
        try:
            for text in audit(self._ledger, self._known, os.environ):
                logger.error("%s", text)
        except (MesosGpuError, OSError) as error:
            logger.error("tasks' devices could not be compared with the ledger: %s", error)

    def _reset(self, gpu: GpuId, request: str) -> None:
        """Reset a card, once for each request: the request is recorded on disk before anything is done."""
        with self._probing:
            record = self._cards.get(gpu)
            if record is None or request in record.resets:
                logger.warning(
                    "reset %s of %s: %s", request, gpu, "done before" if record else "no such card"
                )
                return
            if not self._cards.present(gpu):
                logger.warning("reset %s: %s is gone, and is removed from the records", request, gpu)
                self._cards.forget(gpu)
                return
            self._cards.put(taken_up(record, request))
            self._cards.was_reset(gpu, request, self._reset_claimed(gpu, request), time.time())
            self._known = self._inventory()
        self._wake.set()

    def _reset_claimed(self, gpu: GpuId, request: str) -> str:
        """Reset a card under a claim of its own; return the error, "" if it was reset."""
        task, owner = f"reset.{request}", Owner.of(os.getpid())
        try:
            claimed = self._ledger.claim(task, [gpu], owner)
            if isinstance(claimed, Stale):
                self._reaping.anew()
                claimed = self._ledger.claim(task, [gpu], owner)
            if isinstance(claimed, Refused):
                return f"refused: the card is in use by {', '.join(holding.task for holding in claimed.held)}"
            if isinstance(claimed, Stale):
                return "refused: remains of a dead task on the card cannot be removed yet"
            try:
                return self._probe.reset(gpu)
            finally:
                self._ledger.release(task, owner)
        except MesosGpuError as error:
            return f"refused: {error.what}"

    def _summary(self) -> str:
        if self._failure:
            return f"the GPUs cannot be read: {self._failure}"
        sick = sum(gpu.health is not Health.OK for gpu in self._known.gpus)
        counted = f"{len(self._known.gpus)} GPUs ({self._known.source})"
        return counted + (f", {sick} not healthy" if sick else "")


def _without_use(inventory: Inventory) -> Inventory:
    """Return the inventory without the use of cards, which differs at each look and is not worth an early
    report.
    """
    return replace(inventory, gpu_uses=(), task_uses=())


def interval_from(data: bytes, env: Mapping[str, str]) -> float:
    """Return the seconds between reports: from the task's JSON, else MESOS_GPU_REPORT_INTERVAL_S, else 10.

    Raises:
        ValueError: The data is neither a JSON object nor empty, or the interval is not a positive number.
    """
    given = parsed(data) if data else {}
    if not isinstance(given, dict):
        raise ValueError(f"the task's data must be a JSON object, got {given!r}")
    value = given.get("report_interval_s", env.get("MESOS_GPU_REPORT_INTERVAL_S", DEFAULT_INTERVAL_S))
    try:
        interval_s = float(value)
    except (TypeError, ValueError):
        interval_s = 0.0
    if not 0 < interval_s < float("inf"):
        raise ValueError(f"report_interval_s must be a positive number of seconds, got {value!r}")
    return interval_s


def health_from(env: Mapping[str, str]) -> HealthSettings:
    """Read MESOS_GPU_RECHECK_S (default 60) and MESOS_GPU_XIDS, such as `13=application,109=replace`.

    Raises:
        BadConfiguration: A setting has an invalid value; the message names it.
    """
    recheck_s = _seconds(env, "MESOS_GPU_RECHECK_S", RECHECK_S)
    most_s = max(recheck_s, HealthSettings().recheck_most_s)
    return HealthSettings(
        recheck_s=recheck_s, recheck_most_s=most_s, xids=tiers_from(env.get("MESOS_GPU_XIDS", ""))
    )


def probe_from(env: Mapping[str, str], ledger: Ledger | None = None) -> "GpuProbe":
    """Return the probe of the GPUs: simulated ones if MESOS_GPU_INVENTORY names a file, else the real ones.

    Args:
        env: Environment of the monitor.
        ledger: Ledger with the holders of simulated GPUs; None if none are to be reported.

    Raises:
        BadConfiguration: MESOS_GPU_PROBE_DEADLINE_S or MESOS_GPU_RECHECK_S is not a positive number.
    """
    named = env.get("MESOS_GPU_INVENTORY")
    if named:
        from mesos_gpu.adapters.simulated_gpus import SimulatedProbe

        return SimulatedProbe(named, lambda: _held(ledger) if ledger else ())
    return ChildProbe(
        deadline_s=_seconds(env, "MESOS_GPU_PROBE_DEADLINE_S", DEADLINE_S),
        recheck_s=_seconds(env, "MESOS_GPU_RECHECK_S", RECHECK_S),
        libraries=lambda: driver_volume.libraries_of_module(env),
    )


def _held(ledger: Ledger) -> "list[Holder]":
    """Return the living tasks that hold cards, as a whole or in part."""
    from mesos_gpu.adapters.simulated.use import Holder

    return [
        Holder(
            holding.task, holding.gpus, round(1000 * holding.since), holding.owner.pid, holding.share is None
        )
        for holding in ledger.holdings()
        if holding.gpus and ledger.alive(holding)
    ]


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise BadConfiguration(f"{name} is {text!r}", remedy="set it to a positive number of seconds")
    return value


def main() -> int:
    """Run as an executor of Mesos, with all settings in the environment; return the exit code."""
    log_lines.to_stderr()
    settings = Settings.from_environment(os.environ)
    try:
        slack_from(os.environ)  # checked now, or the first look would fail
        ledger = Ledger(keep=True)
        probe, health = probe_from(os.environ, ledger), health_from(os.environ)
        abilities = Abilities(os.environ)
    except BadConfiguration as error:
        logger.critical("%s", error)
        return error.exit_code
    try:
        return Monitor(settings, probe, ledger, health, abilities).run()
    finally:
        probe.close()
