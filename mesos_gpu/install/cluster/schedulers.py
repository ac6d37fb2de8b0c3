"""Requests to the schedulers of a cluster, run on their hosts over the Unix socket, which authenticates root."""

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.install.cluster.description import Cluster, Host, Role
from mesos_gpu.install.cluster.survey import SOCKET

REASON: Final = "it leaves the cluster"
_ASK_S: Final = 60.0
_EACH_S: Final = 2.0  # between two polls
_NOT_FOUND: Final = 66  # exit status of mesos-gpu


class NotDrained(MesosGpuError):
    """Tasks still run on a host that should be empty."""

    exit_code = 1


class Schedulers:
    """Schedulers of a cluster; a standby forwards requests to the leader.

    Args:
        cluster: Cluster as its file describes it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.hosts = list(cluster.of(Role.SCHEDULER))
        self._program = cluster.package.command

    def drain(self, host: Host, deadline_s: float) -> bool:
        """Cordon an agent's host, and move its tasks elsewhere after a deadline.

        Args:
            host: Host of the agent.
            deadline_s: Seconds that tasks may still run there.

        Returns:
            Whether the scheduler knows an agent on this host.

        Raises:
            Unavailable: No scheduler accepted the request.
        """
        words = ("node", "drain", str(host.address), "--reason", REASON, "--deadline", f"{deadline_s:.0f}s")
        return self._ask(*words) is not None

    def undrain(self, host: Host) -> None:
        """Lift the drain from a host's address, so that a later agent there starts without it.

        Raises:
            Unavailable: No scheduler accepted the request.
        """
        self._ask("node", "undrain", str(host.address))

    def await_empty(self, host: Host, timeout_s: float) -> None:
        """Wait until no task runs on an agent's host.

        Raises:
            NotDrained: Tasks still run there after `timeout_s`.
            Unavailable: No scheduler answered.
        """
        until = time.monotonic() + timeout_s
        while tasks := self._tasks(host):
            if time.monotonic() > until:
                raise NotDrained(
                    f"{host.name}: {tasks} tasks still run there",
                    remedy="see `mesos-gpu tasks`; then apply again: the host stays drained",
                )
            time.sleep(_EACH_S)

    def _tasks(self, host: Host) -> int:
        answer = self._ask("nodes", "--json")
        nodes: list[dict[str, Any]] = _document(answer or "{}").get("nodes", [])
        return sum(int(node["tasks"]) for node in nodes if node["hostname"] == str(host.address))

    def await_leader(self, timeout_s: float) -> str:
        """Wait until one scheduler leads and is connected to the leading master. Return the name of its host.

        Raises:
            Unavailable: There is no such scheduler after `timeout_s`; the message has the state of each.
        """
        until = time.monotonic() + timeout_s
        while True:
            statuses = {host.name: self._status(host) for host in self.hosts}
            leaders = [name for name, (leads, _) in statuses.items() if leads]
            if len(leaders) == 1:
                return leaders[0]
            if time.monotonic() > until:
                details = "; ".join(f"{name}: {words}" for name, (_, words) in statuses.items())
                raise Unavailable(
                    f"no scheduler leads: {details}", remedy="see /var/log/mesos-gpu/scheduler.log there"
                )
            time.sleep(_EACH_S)

    def _status(self, host: Host) -> tuple[bool, str]:
        """Return whether a host's scheduler leads and is connected to Mesos, and a description of its state."""
        done = self._run(host, ("leader", "--json"))
        if done is None or done[0]:
            return False, done[1].strip()[-500:] if done else "it is not reached"
        leader = _document(done[1])
        if not leader["leads"]:
            return False, "it is on standby"
        code, output = self._run(host, ("status", "--json")) or (1, "")
        if code or not _document(output).get("connected"):
            return False, "it leads, but is not connected to the Mesos master"
        return True, "it leads"

    def _ask(self, *words: str) -> str | None:
        """Return the output of a command on the first host that answers; None if the command's target is not known.

        Raises:
            Unavailable: The command failed on all hosts; the message has their output.
        """
        failures = []
        for host in self.hosts:
            done = self._run(host, words)
            if done is not None and done[0] == _NOT_FOUND:
                return None
            if done is not None and done[0] == 0:
                return done[1]
            failures.append(f"{host.name}: {done[1].strip()[-500:] if done else 'it is not reached'}")
        raise Unavailable(
            f"no scheduler could run `mesos-gpu {' '.join(words[:2])}`: "
            f"{'; '.join(failures) or 'the cluster has no scheduler'}",
            remedy="start a scheduler, and apply again",
        )

    def _run(self, host: Host, words: Sequence[str]) -> tuple[int, str] | None:
        """Return exit status and output of a command on a host; None if the host cannot be reached."""
        command = [self._program, "--url", f"unix:{SOCKET}", *words]
        try:
            done = host.ssh.run('exec "$@"', command, timeout_s=_ASK_S)
        except Unavailable:
            return None
        return done.code, done.output


def _document(text: str) -> dict[str, Any]:
    """Return the JSON object that a command prints, without text before it."""
    document, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    return dict(document)
