"""Cleanup after dead executors, check of tasks' devices, and detection of foreign processes on GPUs."""

import logging
import math
import os
import pwd
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from isolator.confinement.enclosure import DENIED, seal, undo
from isolator.devices import cgroups, facts
from isolator.devices.docker_devices import verify
from isolator.devices.members import firsts_of_engine, member_of
from isolator.devices.rules import rules_of
from isolator.gpus.ledger import LAST, Holding, Ledger, Owner
from isolator.host import processes
from isolator.node import programs
from isolator.node.whose import started_ticks
from isolator.shares import card
from isolator.shares.mps import daemon as mps
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.wire.plain import clean

LEFTOVERS_S: Final = 1.0  # what hangs is retried at the next look, which must not wait for it
#: Time limits of the monitor's first and second try to seal one sandbox, in seconds: a tenant can leave millions of
#: directories.
SOON_S: Final = 30.0
SEAL_S: Final = 3600.0
# wait for the cleanup, so that the next look sees its cards free; one that hangs is not waited for
REAP_S: Final = 2.0
logger = logging.getLogger(__name__)


def reap(ledger: Ledger) -> None:
    """End and undo what tasks of dead executors left, and drop their holdings; one whose processes survive
    keeps its holding.

    Raises:
        MesosGpuError: The ledger cannot be used.
    """
    end_dead(ledger)
    seal_left(ledger)


def end_dead(ledger: Ledger) -> None:
    """End tasks of dead executors, undo their traces and release their cards; `seal_left` does the rest,
    which may take long.

    Raises:
        MesosGpuError: The ledger cannot be used.
    """
    for holding in ledger.holdings():
        if holding.is_released or ledger.alive(holding):
            continue
        try:
            left = end(ledger, holding)
        except (MesosGpuError, OSError) as error:
            logger.error("remains of the dead task %s cannot be removed: %s", holding.task, error)
            continue
        except Exception:  # an error of one task must not keep others from being cleaned up
            logger.exception("remains of the dead task %s cannot be removed", holding.task)
            continue
        if left:
            logger.warning("processes %s of the dead task %s could not be killed", left, holding.task)
        else:
            logger.warning(
                "dropped %s of %s: its executor died", ", ".join(holding.gpus) or "no GPU", holding.task
            )
    card.tend(ledger)


def seal_left(ledger: Ledger) -> None:
    """Seal sandboxes that dead executors left, free the uids that wait for that, and drop the holdings.

    Every sandbox, also one that comes meanwhile, is first tried for a short time, so that a large one delays
    no others.

    Raises:
        MesosGpuError: The ledger cannot be used.
    """
    tried, slow = set[tuple[str, Owner]](), list[Holding]()
    while True:
        for holding in ledger.holdings():
            key = holding.task, holding.owner
            if key in tried or not holding.is_released or ledger.alive(holding):
                continue
            tried.add(key)
            if not _seal(ledger, holding, SOON_S):
                slow.append(holding)
        if not slow:
            return
        holding = slow.pop(0)
        if not _seal(ledger, holding, SEAL_S):
            logger.error("the sandbox of the dead task %s was not sealed in %g s", holding.task, SEAL_S)


def _seal(ledger: Ledger, holding: Holding, timeout_s: float) -> bool:
    """Seal the sandbox of a dead executor, and drop its holding; return False if the time did not suffice."""
    # Kill here too: a task without cards and isolation may have reached this point without having been ended.
    left = processes.kill_leftovers(holding.task, LEFTOVERS_S)
    try:
        for trace in reversed(holding.traces):
            if trace.kind == "sandbox":
                seal(trace.what, timeout_s, ledger, logger.warning)
            else:
                left += undo(trace)
    except TimeoutError:
        return False
    except (MesosGpuError, OSError) as error:
        logger.error("the sandbox of the dead task %s cannot be sealed: %s", holding.task, error)
        return True
    if left:
        logger.warning("processes %s of the dead task %s could not be killed", left, holding.task)
    else:
        ledger.drop(holding)
    return True


class Reaping:
    """Cleanup in threads beside the looks at the cards' health.

    An undo that asks a driver may take as long as its deadline, 15 s, and is retried at each look.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._begin = threading.Lock()
        self._thread: threading.Thread | None = None
        # a thread of its own, so that a large sandbox does not delay the release of cards
        self._sealer: threading.Thread | None = None
        self._tidied = -math.inf

    def look(self) -> None:
        """Start a cleanup and wait a moment for its end; do nothing while one is under way."""
        with self._begin:
            if self._thread is not None and self._thread.is_alive():
                return
            self._thread = thread = threading.Thread(target=self._reap, name="reaper", daemon=True)
            thread.start()
        thread.join(REAP_S)

    def anew(self) -> None:
        """Start a cleanup after the one that is under way, which may have missed the newest remains; wait a
        moment for both.
        """
        if (under_way := self._thread) is not None:
            under_way.join(REAP_S)
        self.look()

    def _reap(self) -> None:
        try:
            end_dead(self._ledger)
        except (MesosGpuError, OSError) as error:
            logger.error("cleanup after dead tasks failed (retried at the next look): %s", error)
        if self._sealer is None or not self._sealer.is_alive():
            self._sealer = threading.Thread(target=self._seal, name="sealer", daemon=True)
            self._sealer.start()
        if time.monotonic() - self._tidied >= programs.OFTEN_S:
            self._tidied = time.monotonic()
            try:
                programs.tidy(self._ledger.directory, time.time())
            except OSError as error:
                logger.error("old programs could not be removed: %s", error)

    def _seal(self) -> None:
        try:
            seal_left(self._ledger)
        except (MesosGpuError, OSError) as error:
            logger.error("sandboxes of dead tasks could not be sealed (retried at the next look): %s", error)


def end(ledger: Ledger, holding: Holding, timeout_s: float = LEFTOVERS_S) -> list[int]:
    """End the task of a dead executor, undo its traces, last first, and release its holding.

    The sandbox is left to `seal_left` of the node monitor, which delays no other task.

    Returns:
        Pids of processes that could not be killed; the holding stays if there are any.

    Raises:
        MesosGpuError, OSError: A trace cannot be undone; the holding stays.
    """
    try:
        _drain(ledger, holding, timeout_s)
    except (MesosGpuError, OSError) as error:  # the processes are killed all the same
        logger.warning("the MPS clients of the dead task %s could not be drained: %s", holding.task, error)
    left = processes.kill_leftovers(holding.task, timeout_s)
    for trace in reversed(holding.traces):
        left += undo(trace) if trace.kind not in LAST else []
    if not left:
        let_go(ledger, holding, timeout_s)
    return left


def _drain(ledger: Ledger, holding: Holding, timeout_s: float) -> None:
    """Let the work of the task's MPS clients end before they are killed, as their executor would have done."""
    if holding.share is None or not holding.share.method.has_domain:
        return
    pids = processes.of_task(holding.task)
    for row in ledger.cards(holding.gpus[0]):
        if row.kind == mps.KIND:
            mps.drain(mps.host_of(os.environ), mps.Domain.of(row.what), pids, timeout_s)


def let_go(ledger: Ledger, holding: Holding, timeout_s: float) -> None:
    """Release a dead executor's holding whose traces are undone, and undo the sharing of its cards if no
    other task needs it.

    Args:
        timeout_s: Seconds to wait for another process that works on the cards.

    Raises:
        MesosGpuError, OSError: What was made of a card cannot be undone; it stays in the ledger.
    """
    if holding.share is None:
        ledger.release(holding.task, holding.owner, holding.container)
        return
    from isolator.shares import enforcing

    enforcing.let_go(ledger, holding.task, holding.owner, holding.container, holding.gpus, timeout_s)


def audit(ledger: Ledger, inventory: Inventory, env: Mapping[str, str]) -> list[str]:
    """Check that each living task's cgroup allows exactly the devices that it holds by the ledger; correct it
    if not.

    The Docker Engine sets the cgroups of its containers: a difference there is only reported.

    Args:
        ledger: The ledger of this host.
        inventory: The inventory of this host.
        env: Environment of the monitor, which executors of this host have, too.

    Returns:
        Differences, in words.

    Raises:
        MesosGpuError: The ledger cannot be used.
    """
    version = facts.isolation_name(env)
    if version == "off":
        return []
    driver = facts.read_driver(env=env)
    minors = {gpu.id: gpu.minor for gpu in inventory.gpus}
    notes = []
    living = [
        each for each in ledger.holdings() if each.container and not each.is_released and ledger.alive(each)
    ]
    firsts = firsts_of_engine(living)
    for holding in living:
        if not minors.keys() >= set(holding.gpus):
            continue  # a card is lost, for which its task is ended
        try:
            held = {gpu: minors[gpu] for gpu in holding.gpus}
            devices = facts.granted_devices(driver, held, holding.share, inventory)
            if any(t.kind == "docker" for t in holding.traces):
                if (pid := firsts.get(holding.container)) is not None:
                    verify(pid, {(each.major, each.minor) for each in devices}, driver.nvidia_majors)
                continue
            rules = rules_of(devices, facts.extra_devices(env, driver))
            cgroup = cgroups.cgroup_of(holding.container, version, pid=holding.owner.pid)
            if not cgroup.path.exists() or not _is_set_up(holding, cgroup) or cgroup.allows_exactly(rules):
                continue
            cgroup.allow(rules)
            notes.append(
                f"{cgroup.path} of {holding.task} allowed other devices than the task holds: corrected"
            )
        except (MesosGpuError, OSError) as error:
            notes.append(f"the devices of {holding.task} are wrong, or cannot be checked: {error}")
    return notes


def _is_set_up(holding: Holding, cgroup: cgroups.Cgroup) -> bool:
    """Return whether the task's device nodes are complete, and its own cgroup, if it has one, has processes.

    Before that the executor may still be setting the rules.
    """
    nodes = [Path(trace.what) for trace in holding.traces if trace.kind == "nodes"]
    made = all((path / DENIED).exists() for path in nodes)
    return made and (not cgroup.own or bool(cgroups.pids_below(cgroup.path)))


def strangers(
    ledger: Ledger, pids: Mapping[GpuId, Sequence[int]], began_ticks: int | None = None
) -> dict[GpuId, str]:
    """Return the GPUs with processes that no living task accounts for, with a description of these processes.

    Args:
        ledger: The ledger of this host.
        pids: Processes on each GPU by NVML.
        began_ticks: Time when NVML was asked, in clock ticks since boot; now by default. A process that
            started later has reused the pid of one that was on the GPU.

    Raises:
        MesosGpuError: The ledger cannot be used.
    """
    if not any(pids.values()):
        return {}
    checks: dict[GpuId, list[Callable[[int], bool]]] = {gpu: [] for gpu in pids}
    for holding in ledger.holdings():
        if (on := pids.keys() & set(holding.gpus)) and ledger.alive(holding):
            ours = member_of(holding)
            for gpu in on:
                checks[gpu].append(ours)
    for row in ledger.cards():
        if row.kind == mps.KIND and row.gpu in checks:
            checks[row.gpu].append(mps.member_of(row.what))
    strangers_by_gpu = {}
    for gpu, present in pids.items():
        strange = [
            pid
            for pid in present
            if not any(ours(pid) for ours in checks[gpu]) and _was_there(pid, began_ticks)
        ]
        if strange:
            strangers_by_gpu[gpu] = "; ".join(_who(pid) for pid in strange) + ", which no task accounts for"
    return strangers_by_gpu


def _was_there(pid: int, ticks: int | None) -> bool:
    """Return whether a process exists, and existed at that time (clock ticks since boot)."""
    if not Path(f"/proc/{pid}").exists():
        return False
    started = None if ticks is None else started_ticks(pid)
    return ticks is None or started is None or started <= ticks


def _who(pid: int) -> str:
    """Describe a process: "pid 4711 (python3) of alice"."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace")
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return f"pid {pid}, which has just ended"
    try:
        return f"pid {pid} ({clean(name.strip())}) of {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"pid {pid} ({clean(name.strip())}) of uid {uid}"
