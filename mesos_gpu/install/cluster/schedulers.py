"""What a cluster's schedulers are asked, on their own hosts, where root is known by the Unix socket."""

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.install.cluster.description import Cluster, Host, Role
from mesos_gpu.install.cluster.survey import SOCKET

REASON: Final = "it leaves the cluster"
_ASK_S: Final = 60.0
_EACH_S: Final = 2.0  # between two looks
_NOT_FOUND: Final = 66  # exit status of mesos-gpu


class NotDrained(MesosGpuError):
    """Tasks still run on a host that should be empty."""

    exit_code = 1


class Schedulers:
    """All of a cluster: who stands by asks the one that leads."""

    def __init__(self, cluster: Cluster) -> None:
        """`cluster`: as it is described."""
        self.hosts = list(cluster.of(Role.SCHEDULER))
        self._program = cluster.package.command

    def drain(self, host: Host, deadline_s: float) -> bool:
        """Keep new work off an agent's host, and have what still runs there after a time start elsewhere.

        Args:
            host: Of the agent.
            deadline_s: That time.

        Returns:
            Whether the scheduler knows that agent at all.

        Raises:
            Unavailable: No scheduler does it.
        """
        words = ("node", "drain", str(host.address), "--reason", REASON, "--deadline", f"{deadline_s:.0f}s")
        return self._ask(*words) is not None

    def undrain(self, host: Host) -> None:
        """Let a host of that address come back without a drain.

        Raises:
            Unavailable: No scheduler does it.
        """
        self._ask("node", "undrain", str(host.address))

    def await_empty(self, host: Host, timeout_s: float) -> None:
        """Wait until no task runs on an agent's host.

        Raises:
            NotDrained: Some still do.
            Unavailable: No scheduler says.
        """
        until = time.monotonic() + timeout_s
        while tasks := self._tasks(host):
            if time.monotonic() > until:
                raise NotDrained(
                    f"{host.name}: {tasks} tasks still run there",
                    remedy="look at `mesos-gpu tasks`; then apply again: the host stays drained",
                )
            time.sleep(_EACH_S)

    def _tasks(self, host: Host) -> int:
        answer = self._ask("nodes", "--json")
        nodes: list[dict[str, Any]] = _document(answer or "{}").get("nodes", [])
        return sum(int(node["tasks"]) for node in nodes if node["hostname"] == str(host.address))

    def await_leader(self, timeout_s: float) -> str:
        """Wait until one leads, and reaches Mesos' master that leads; the name of its host.

        Raises:
            Unavailable: None does; what they say is told.
        """
        until = time.monotonic() + timeout_s
        while True:
            told = {host.name: self._status(host) for host in self.hosts}
            leaders = [name for name, (leads, _) in told.items() if leads]
            if len(leaders) == 1:
                return leaders[0]
            if time.monotonic() > until:
                said = "; ".join(f"{name}: {words}" for name, (_, words) in told.items())
                raise Unavailable(
                    f"no scheduler leads: {said}", remedy="look at /var/log/mesos-gpu/scheduler.log there"
                )
            time.sleep(_EACH_S)

    def _status(self, host: Host) -> tuple[bool, str]:
        """Whether a host's scheduler leads and reaches Mesos, and in words why not."""
        done = self._run(host, ("leader", "--json"))
        if done is None or done[0]:
            return False, done[1].strip()[-500:] if done else "it is not reached"
        told = _document(done[1])
        if not told["leads"]:
            return False, "it stands by"
        code, output = self._run(host, ("status", "--json")) or (1, "")
        if code or not _document(output).get("connected"):
            return False, "it leads, and does not reach Mesos' master"
        return True, "it leads"

    def _ask(self, *words: str) -> str | None:
        """What a command prints on the first of the hosts that answers; None: what it names is not known.

        Raises:
            Unavailable: None does; what they say is told.
        """
        said = []
        for host in self.hosts:
            done = self._run(host, words)
            if done is not None and done[0] == _NOT_FOUND:
                return None
            if done is not None and done[0] == 0:
                return done[1]
            said.append(f"{host.name}: {done[1].strip()[-500:] if done else 'it is not reached'}")
        raise Unavailable(
            f"no scheduler does `mesos-gpu {' '.join(words[:2])}`: {'; '.join(said) or 'there is none'}",
            remedy="have one run, and apply again",
        )

    def _run(self, host: Host, words: Sequence[str]) -> tuple[int, str] | None:
        """Exit status and output of a command on a host; None: it is not reached."""
        command = [self._program, "--url", f"unix:{SOCKET}", *words]
        try:
            done = host.ssh.run('exec "$@"', command, timeout_s=_ASK_S)
        except Unavailable:
            return None
        return done.code, done.output


def _document(text: str) -> dict[str, Any]:
    """The JSON object that a command prints, after what it may say before."""
    made, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    return dict(made)
