"""Run of an image in a container nested in the executor's, by the agent's Mesos containerizer.

The nested container shares the executor's cgroups (LinuxInfo.share_cgroups is true by default), so the rules
that are set on those hold inside. Source: Mesos' docs/nested-container-and-task-group.md and
docs/operator-http-api.md.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from isolator.agent.agent_api import Connection
from isolator.agent.flags import flags_of_own_agent
from isolator.confinement.apart import apart_of
from isolator.confinement.enclosure import Enclosure
from isolator.confinement.gate import PROGRAM, Gate
from isolator.confinement.inner_calls import Inner
from isolator.confinement.limits import OPTIONAL, UNLIMITED
from isolator.devices import cgroups
from isolator.gpus.ledger import Trace
from isolator.host import processes, rootfs
from isolator.host.not_started import NotStarted
from isolator.host.sandbox import CONTAINERS, NESTED, STREAMS, Sandbox
from isolator.images.source import read_config, registry_of
from isolator.runs.image_run import (
    KILL,
    TERM,
    Prepared,
    argv_of,
    command_of,
    ended_of,
    hand_secrets,
    in_sandbox,
    prepare,
    refused_without_isolation,
)
from isolator.runs.run import Ended, Launch, container_of, sandbox_of, secret_env
from mesos_gpu.errors import NotFound
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.policy.tasks.limits import is_out_of_memory, out_of_memory, used_in
from mesos_gpu.wire.body import parsed

if TYPE_CHECKING:  # deferred: few executors need it
    from isolator.runs.memory import Watch

CALL_S: Final = 30.0
RETRY_S: Final = 0.2
#: Isolator of the agent; without it, containers share System V's memory, semaphores and queues, and POSIX
#: queues.
OWN_IPC: Final = "namespaces/ipc"
#: Capabilities of an image's root, by the names of mesos.proto; other users keep none.
ROOT_KEEPS: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
_FAILED_INFRASTRUCTURE: Final = ("REASON_CONTAINER_LAUNCH_FAILED", "REASON_CONTAINER_UPDATE_FAILED")


class NestedRun:
    """`Run` of an image by the agent.

    Args:
        plan: Launch of the task.
        connection: Connection to the agent.
        inventory: Cards of this host.
        own: Environment of the executor.
    """

    def __init__(
        self, plan: Assignment, connection: Connection, inventory: Inventory, own: Mapping[str, str]
    ) -> None:
        self._plan, self._connection, self._inventory, self._own = plan, connection, inventory, own
        self._container = {"value": NESTED, "parent": {"value": container_of(own)}}
        self._enclosure: Enclosure | None = None
        self._task = ""  # Mesos' task id
        self._gate: Gate | None = None
        self._memory: Watch | None = None
        self._how: Ended | None = None
        self._asked = False  # whether the container may exist in the agent
        self._ended = threading.Event()

    def adapt(self, enclosure: Enclosure) -> Enclosure:
        """Keep the enclosure; the agent starts the nested container in the executor's cgroup."""
        refused_without_isolation(enclosure.isolated)
        limits = enclosure.limits.nested(container_of(self._own))
        if enclosure.fence is None:
            limits = limits.without("pids", "io")
            if limits.own():
                raise NotStarted(
                    "memory and CPUs of an image are limited at its gate, but it has none if control ports are not "
                    "denied; it needs an agent with --isolation=cgroups/mem,cgroups/cpu or without "
                    f"MESOS_GPU_CONTROL_PORTS=off; or {UNLIMITED}={','.join(OPTIONAL)} on the agent",
                    Outcome(infrastructure=True),
                )
        return replace(enclosure, limits=limits)

    def traces(self) -> tuple[Trace, ...]:
        """Return the trace of the writable layer of the task's image, if there is one.

        The container needs no trace: the agent destroys containers that are nested in an ended one.
        """
        place = rootfs.place_of(sandbox_of(self._own)) if os.geteuid() == 0 else ""
        return (Trace("rootfs", place),) if place else ()

    def start(self, launch: Launch) -> None:
        """Start the nested container, as `Run.start`; the agent fetches the image first."""
        assert self._plan.image is not None
        self._enclosure, self._task = launch.enclosure, launch.task
        launch.enclosure.limits.leave()
        launch.enclosure.verify()  # verified here, as the nested container will share this process' cgroup
        flags = flags_of_own_agent(self._own)
        denied = launch.enclosure.fence.denied if launch.enclosure.fence is not None else ()
        try:
            config = read_config(self._plan.image, registry=registry_of(flags, self._own), denied=denied)
        except NotFound as error:
            raise NotStarted(f"{error.what}; {error.remedy}") from error
        command_of(self._plan, config)
        argv = in_sandbox(argv_of(self._plan, config), self._plan, config)
        prepared = prepare(launch, config, self._inventory, by_agent=True)
        isolators = flags.get("isolation", "").split(",")
        _check_rights(isolators, root=prepared.user.pw_uid == 0)
        with Sandbox(launch.sandbox) as place:
            place.keep(CONTAINERS)
        if launch.enclosure.fence is not None:
            apart = replace(apart_of(self._own), sockets=not launch.reaches_sockets)
            self._gate = Gate(launch.enclosure.gate, launch.enclosure.fence, apart)
            self._gate.open()
        self._asked = True
        status, answer = self._connection.call(
            self._order(prepared, argv, own_ipc=OWN_IPC in isolators), None
        )
        if status != 200:
            # Text of the agent: the image does not exist, the command is invalid, or the disk is full.
            text = answer.decode(errors="replace").strip()
            raise NotStarted(
                f"the agent did not start {self._plan.image}: {text}", Outcome(infrastructure=status != 400)
            )
        if self.traces():
            rootfs.move(launch.sandbox, (CONTAINERS, NESTED))
        self._show_streams(launch.sandbox)
        threading.Thread(target=self._follow, daemon=True).start()
        if self._gate is not None:

            def on_started(pid: int) -> None:
                """Apply limits and hand over secrets to the first process of the task."""
                launch.enclosure.limits.take(pid)
                prepared.see(pid)
                hand_secrets(launch, prepared, pid)

            # commands cannot join an image that runs as root: see `joining.Place`
            leaves = prepared.user.pw_uid != 0
            self._gate.admit(
                argv, self._ended.is_set, see=on_started, leaves=leaves, variables=secret_env(launch)
            )
            if (memory := launch.enclosure.limits.watched) is not None:
                from isolator.runs.memory import Watch

                self._memory = Watch(memory, lambda: self.terminate(0.0))

    def _order(self, prepared: Prepared, argv: Sequence[str], *, own_ipc: bool) -> dict[str, Any]:
        """Return the call to the agent that launches the container."""
        plan, enclosure = self._plan, self._enclosure
        assert enclosure is not None
        command: dict[str, Any] = {
            "user": prepared.user.pw_name,
            "environment": {
                "variables": [{"name": k, "type": "VALUE", "value": v} for k, v in prepared.env.items()]
            },
        }
        first = argv if self._gate is None else (PROGRAM, *argv)
        command |= {"shell": False, "value": first[0], "arguments": list(first)}
        nodes = [(str(enclosure.node(d)), d.path, "RW") for d in (*enclosure.devices, *enclosure.extra)]
        gate = [self._gate.bind()] if self._gate is not None else []
        kept = list(ROOT_KEEPS) if prepared.user.pw_uid == 0 else []
        binds = [
            (outside, inside, "RO" if only else "RW")
            for outside, inside, only in (*prepared.binds, *prepared.share, *gate)
        ]
        return {
            "type": "LAUNCH_CONTAINER",
            "launch_container": {
                "container_id": self._container,
                "command": command,
                "container": {
                    "type": "MESOS",
                    "mesos": {
                        "image": {"type": "DOCKER", "docker": {"name": plan.image}, "cached": not plan.pull}
                    },
                    "linux_info": {
                        "bounding_capabilities": {"capabilities": kept},
                        "effective_capabilities": {"capabilities": kept},
                        **({"ipc_mode": "PRIVATE"} if own_ipc else {}),
                    },
                    "volumes": [
                        {
                            "mode": mode,
                            "container_path": inside,
                            "source": {"type": "HOST_PATH", "host_path": {"path": outside}},
                        }
                        for outside, inside, mode in (*nodes, *binds)
                    ],
                },
            },
        }

    def _show_streams(self, sandbox: str) -> None:
        """Link the container's output files, which are in a sandbox of its own, into the task's sandbox."""
        with Sandbox(sandbox) as place, place.enter(CONTAINERS, NESTED) as nested:
            for name in STREAMS:
                if not place.show(nested, name):
                    text = f"the task replaced its {name} by another file, which is not shown"
                    print(f"[mesos-gpu] {text}", file=sys.stderr, flush=True)

    def pid(self) -> int | None:
        """Return the pid of the first process, as `Run.pid`; the agent does not report it, so it is searched."""
        from isolator.runs.joining import first_of

        enclosure = self._enclosure
        if enclosure is None or enclosure.cgroup is None:
            return None
        path = enclosure.cgroup.path
        return first_of(lambda: cgroups.pids_below(path), self._task)

    def inner(self) -> Inner | None:
        """Return the inner process; see `Run.inner`."""
        return self._gate.inner if self._gate is not None else None

    def streams(self) -> tuple[int | None, int | None]:
        """Return the files of the output, as `Run.streams`."""
        return (None, None)

    def wait(self) -> Ended:
        """Wait for the end of the container, as `Run.wait`."""
        self._ended.wait()
        return self._how or Ended(
            why="the agent's report on the end of the container is not valid", infrastructure=True
        )

    def _follow(self) -> None:
        try:
            self._how = self._awaited()
        finally:
            self._ended.set()

    def _awaited(self) -> Ended:
        """Wait for the end of the container, even over restarts of the agent, and return it."""
        ask = {"type": "WAIT_CONTAINER", "wait_container": {"container_id": self._container}}
        while True:
            try:
                status, answer = self._connection.call(ask, None)
            except OSError:  # the agent is away
                status, answer = 0, b""
            if status == 200:
                return _ended(parsed(answer)["wait_container"], self._plan.mem_mib)
            # otherwise the agent has just started and has no routes yet
            if status == 404 and b"cannot be found" in answer:
                return Ended(why="the agent does not know the container any more", infrastructure=True)
            time.sleep(RETRY_S)

    def notify(self, number: int) -> None:
        """Signal the container's processes, as `Run.notify`."""
        if not self._ended.is_set():
            processes.send(processes.handling(self._tree(), number), number)

    def terminate(self, grace_s: float) -> None:
        """End the container, as `Run.terminate`. The executor signals its processes, as the agent would
        signal only the first.
        """
        if grace_s > 0 and not self._ended.is_set():
            first = processes.eldest(self._tree())
            if not first:  # its processes are not visible
                self._kill(TERM)
            processes.terminate(self._tree, first, grace_s, self._ended.is_set)
        if not self._ended.is_set():
            self._kill(KILL)

    def _tree(self) -> list[int]:
        """Return the processes of the container, without those of commands beside the task.

        Mesos' own process, their parent, is left out: it handles every signal, and sends it on to the first process
        (slave/containerizer/mesos/launch.cpp).
        """
        from isolator.runs.joining import carrying

        marked = carrying(self._others(), self._task)
        below = (process for pid in marked for process in processes.descendants(pid))
        return list(dict.fromkeys((*marked, *below)))

    def _others(self) -> list[int]:
        enclosure = self._enclosure
        if enclosure is None or enclosure.cgroup is None:
            return []
        mine = os.getpid()
        return [
            pid for pid in cgroups.pids_below(enclosure.cgroup.path) if pid != mine and _has_other_root(pid)
        ]

    def _kill(self, number: int) -> None:
        ask = {"container_id": self._container, "signal": number}
        with contextlib.suppress(OSError):
            self._connection.call({"type": "KILL_CONTAINER", "kill_container": ask}, CALL_S)

    def abort(self) -> None:
        """Cut a start short, as `Run.abort`."""
        if self._asked:
            self._kill(KILL)

    def clear(self) -> list[int]:
        """End the container, as `Run.clear`."""
        if self._memory is not None:
            self._memory.close()
        if self._gate is not None:
            self._gate.close()
            if self._gate.inner is not None:
                self._gate.inner.close()
        if self._asked and not self._ended.is_set():
            self._kill(KILL)
            with contextlib.suppress(OSError):
                ask = {"type": "WAIT_CONTAINER", "wait_container": {"container_id": self._container}}
                self._connection.call(ask, CALL_S)
        return []


def _check_rights(isolators: Sequence[str], *, root: bool) -> None:
    """Check the agent's isolators for rights that only the agent can take from a nested container.

    Raises:
        NotStarted: One is missing: a setuid program of the image, or its root, could then give itself any
            device.
    """
    lacking = [
        name for name in ("linux/nnp", *(("linux/capabilities",) if root else ())) if name not in isolators
    ]
    if lacking:
        as_user = "as root " if root else ""
        raise NotStarted(
            f"an image cannot run {as_user}on an agent whose --isolation lacks {' and '.join(lacking)}: it could give "
            "itself every device; or use --container-engine own or docker"
        )


def _has_other_root(pid: int) -> bool:
    """Return whether a process has another root file system than this one, so is not a helper of Mesos or of
    ours.
    """
    try:
        return os.readlink(f"/proc/{pid}/root") != "/" or os.stat(f"/proc/{pid}/root") != os.stat("/")
    except OSError:
        return False


def _ended(report: Mapping[str, Any], mem_mib: float) -> Ended:
    """Return the end of the container by the agent's report."""
    reason, message = report.get("reason", ""), report.get("message", "")
    limit = out_of_memory(mem_mib, used_in(message)) if is_out_of_memory(reason) else ""
    if "exit_status" not in report:
        why = message or reason or "the container ended without a status"
        return Ended(
            signal=KILL if limit else None,
            why="" if limit else why,
            infrastructure=reason in _FAILED_INFRASTRUCTURE,
            limit=limit,
        )
    more = message if reason.startswith("REASON_CONTAINER_LIMITATION") and not limit else ""
    return replace(ended_of(int(report["exit_status"]), more), limit=limit)
