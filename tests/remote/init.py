"""What systemd does of units of ours, as the first process of a host in namespaces: start, stop, start again.

Run as `init.py COMMAND...` it starts that command, a server of SSH, too, and listens at SOCKET. Run as `systemctl` it
asks there. Only the standard library is used.
"""

import json
import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from string import Template

SOCKET = "/run/init.sock"
UNITS = Path("/usr/lib/systemd/system")
WANTS = Path("/etc/systemd/system/multi-user.target.wants")
STOP_S = 20.0


class Unit:
    """A service."""

    def __init__(self, name: str) -> None:
        self.said: dict[str, list[str]] = {}
        for line in (UNITS / name).read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self.said.setdefault(key, []).append(value)
        self.name, self.pid, self.again_at = name, 0, 0.0
        self.is_wanted = self.is_done = False

    def one(self, key: str, default: str = "") -> str:
        return self.said.get(key, [default])[-1]

    def start(self) -> None:
        self.is_wanted, self.is_done = True, False
        user = pwd.getpwnam(self.one("User", "root"))
        for kind, top in (("State", "/var/lib"), ("Runtime", "/run")):
            if name := self.one(f"{kind}Directory"):
                Path(top, name).mkdir(exist_ok=True)
                os.chown(Path(top, name), user.pw_uid, user.pw_gid)
        given: dict[str, str] = {}
        for file in self.said.get("EnvironmentFile", []):
            given |= dict(word.split("=", 1) for word in shlex.split(Path(file).read_text(), comments=True))
        words = Template(self.one("ExecStart")).safe_substitute(given).split()
        output = self.one("StandardOutput").removeprefix("append:") or os.devnull
        with open(output, "ab") as log:
            process = subprocess.Popen(
                words,
                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **given},
                cwd="/", user=user.pw_uid, group=user.pw_gid, extra_groups=[],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.pid = process.pid
        process.returncode = 0  # `reap` waits for it

    def ended(self, code: int) -> None:
        self.pid = 0
        policy = self.one("Restart", "no")
        if str(code) in self.one("RestartPreventExitStatus").split():
            policy = "no"
        if self.is_wanted and (policy == "always" or (policy == "on-failure" and code)):
            self.again_at = time.monotonic() + float(self.one("RestartSec", "1"))
        elif self.one("Type") == "oneshot" and not code:
            self.is_done = True


class Init:
    """All services, and whoever asks about them."""

    def __init__(self) -> None:
        self.units: dict[str, Unit] = {}

    def unit(self, name: str) -> Unit:
        """A service as its file says it now; one that runs keeps what it was started with."""
        known = self.units.get(name)
        if known is None or not (known.pid or known.again_at):
            self.units[name] = Unit(name)
        return self.units[name]

    def reap(self) -> None:
        """Take note of processes that have ended, and start services anew."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            for unit in self.units.values():
                if unit.pid == pid:
                    unit.ended(os.waitstatus_to_exitcode(status))
        for unit in self.units.values():
            if unit.again_at and unit.again_at <= time.monotonic():
                unit.again_at = 0.0
                unit.start()

    def stop(self, unit: Unit) -> None:
        unit.is_wanted, unit.again_at = False, 0.0
        until = time.monotonic() + STOP_S
        if unit.pid:
            os.kill(unit.pid, signal.SIGTERM)
        while unit.pid:
            self.reap()
            if unit.pid and time.monotonic() > until:
                os.kill(unit.pid, signal.SIGKILL)
            time.sleep(0.02)

    def done(self, verb: str, name: str) -> int:
        """Do what `systemctl VERB NAME` asks for; its exit status."""
        if verb == "daemon-reload":
            return 0
        if not (UNITS / name).exists():
            return 4
        if verb == "enable":
            WANTS.mkdir(parents=True, exist_ok=True)
            (WANTS / name).unlink(missing_ok=True)
            (WANTS / name).symlink_to(UNITS / name)
            return 0
        if verb == "disable":
            (WANTS / name).unlink(missing_ok=True)
            return 0
        if verb == "kill":  # of USR1 alone
            os.kill(self.unit(name).pid, signal.SIGUSR1)
            return 0
        if verb == "is-enabled":
            return 0 if (WANTS / name).exists() else 1
        if verb == "is-active":
            known = self.units.get(name)
            return 0 if known and (known.pid or known.is_done) else 3
        if verb in ("restart", "stop"):
            self.stop(self.unit(name))
        if verb in ("restart", "start"):
            unit = self.unit(name)
            if not unit.pid:
                unit.start()
        return 0

    def run(self, command: list[str]) -> None:
        """Serve for as long as this host is there."""
        Path("/run/systemd/system").mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(SOCKET)
            listener.listen()
            listener.settimeout(0.05)
            subprocess.Popen(command).returncode = 0
            while True:
                self.reap()
                try:
                    asked, _ = listener.accept()
                except TimeoutError:
                    continue
                with asked:
                    verb, name = json.loads(asked.recv(4096))
                    asked.sendall(b"%d" % self.done(verb, name))


def main() -> int:
    """Be the one or the other."""
    if Path(sys.argv[0]).name != "systemctl":
        Init().run(sys.argv[1:])
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if not words:  # scripts of packages look whether it is there
        return 0
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(SOCKET)
        asking.sendall(json.dumps([words[0], words[1] if len(words) > 1 else ""]).encode())
        return int(asking.recv(16))


if __name__ == "__main__":
    sys.exit(main())
