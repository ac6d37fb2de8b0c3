"""`systemctl daemon-reload` under a task that holds a GPU: systemd sets the devices of its units anew, and takes from
them what others have granted there; a task of an agent that is its service keeps its card, and gets no other."""

import errno
import json
import os
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest

from isolator.agent.commands import executor_command
from isolator.devices import bpf_sys
from isolator.devices.cgroups import OWN_ROOT
from mesos_gpu.install import agent as installed
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import GPUS, host
from tests.kernel.conftest import EACH_CGROUP
from tests.kernel.reloads.systemd import Systemd, systemd

pytestmark = pytest.mark.kernel
CGROUPS = EACH_CGROUP
ENXIO, EPERM = errno.ENXIO, errno.EPERM
AGENT, NEIGHBOUR = "mesos-gpu-agent.service", "neighbour.service"
RELOADS = 10
#: A service that is kept to /dev/null by systemd, as a container's scope is.
STRICT = """
[Unit]
DefaultDependencies=no
[Service]
Type=exec
ExecStart=/bin/sleep infinity
StandardOutput=null
StandardError=null
DevicePolicy=strict
DeviceAllow=/dev/null rw
"""
#: Tries to open each path until the file `stop` is there; says in `turns` how often it has.
PROBE = """
import json, os, sys
def tried(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno
    return 0
seen, turns = set(), 0
while not os.path.exists("stop"):
    seen.add(json.dumps({path: tried(path) for path in sys.argv[1:]}, sort_keys=True))
    turns += 1
    with open("next", "w") as file:
        file.write(str(turns))
    os.rename("next", "turns")
print(json.dumps(sorted(seen)))
"""


def unit_of_agents(directory: Path) -> str:
    """The service of agents as it is installed, but for its program, its settings and its log."""
    files = installed.files(installed.AgentHost("m:5050", 2, "v1", binary="/bin/sleep infinity"))
    text = next(file.text for file in files if file.path.endswith(f"/{AGENT}"))
    (directory / "agent.env").write_text("")
    for theirs, ours in (
        ("/etc/mesos-gpu/agent.env", "agent.env"),
        ("/var/log/mesos-gpu/agent.log", "agent.log"),
    ):
        assert theirs in text
        text = text.replace(theirs, str(directory / ours))
    return text


def executor_of(there: Systemd) -> str:
    """The command of an executor as a child of the agent's service: in its namespaces and cgroups."""
    mounts = ("systemd", "devices", "unified") if there.version == "cgroup1" else ("",)
    files = [f"/sys/fs/cgroup/{mount}/{there.below(AGENT)}/cgroup.procs" for mount in mounts]
    join = "".join(f"if [ -e {file} ]; then echo $$ > {file}; fi; " for file in files)
    return "exec " + shlex.join(
        there.entering("sh", "-c", f'{join}cd "$MESOS_SANDBOX"; {executor_command()}')
    )


def grant_behind_its_back(there: Systemd) -> None:
    """Give the neighbour all cards, as a container runtime does that sets devices itself."""
    path = there.devices(NEIGHBOUR)
    if there.version == "cgroup1":
        (path / "devices.allow").write_text("c 195:* rwm")
        return
    cgroup = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for each in bpf_sys.query(cgroup):
            program = bpf_sys.open_program(each.id)
            bpf_sys.detach(cgroup, program)
            os.close(program)
    finally:
        os.close(cgroup)


def opened_by(there: Systemd, name: str, node: Path) -> int:
    """What open(2) says to a process in a service's cgroups."""
    pid = os.fork()
    if pid == 0:
        status = 255
        try:
            for path in there.cgroups(name):
                (path / "cgroup.procs").write_text("0")
            os.close(os.open(node, os.O_RDWR))
            status = 0
        except OSError as error:
            status = error.errno or 255
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def rules(there: Systemd, container: str) -> Any:
    """What the kernel holds of the task's devices."""
    path = there.roots["devices" if there.version == "cgroup1" else ""] / OWN_ROOT / container
    if there.version == "cgroup1":
        return (path / "devices.list").read_text()
    cgroup = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return bpf_sys.query(cgroup)
    finally:
        os.close(cgroup)


def with_nodes(sandbox: Path) -> None:
    """The probe, and nodes of two cards that anybody may use as far as their modes go."""
    (sandbox / "probe.py").write_text(PROBE)
    for minor in (0, 1):
        path = sandbox / f"nvidia{minor}"
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(195, minor))
        path.chmod(0o666)
    sandbox.chmod(0o777)


def turns(sandbox: Path) -> int:
    """How often the probe has tried all."""
    path = sandbox / "turns"
    return int(path.read_text()) if path.exists() else 0


def opens_again(sandbox: Path) -> None:
    """Wait until the task has tried to open all since now."""
    before = turns(sandbox)
    wait_until("the task goes on", lambda: turns(sandbox) > before + 1)


@pytest.mark.long
def test_a_task_keeps_its_card_and_gets_no_other_when_systemd_reloads(
    open_directory: Path, agent: ScriptedAgent, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = open_directory / f"reloads-{isolation}"
    directory.mkdir(mode=0o755)
    with systemd(isolation, directory) as there:
        there.start(AGENT, unit_of_agents(directory))
        there.start(NEIGHBOUR, STRICT)
        monkeypatch.setattr("tests.hosts.executor_command", lambda: executor_of(there))
        with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
            with_nodes(one.sandbox)
            one.launch("/usr/bin/python3 probe.py /dev/nvidia0 nvidia0 nvidia1", user="nobody", gpus=GPUS[:1])
            wait_until("the task opens its card", lambda: turns(one.sandbox) > 0)
            held, card = rules(there, one.sandbox.name), one.sandbox / "nvidia0"
            for _ in range(RELOADS):
                grant_behind_its_back(there)
                assert opened_by(there, NEIGHBOUR, card) == ENXIO
                there.run("systemctl", "daemon-reload")
                assert opened_by(there, NEIGHBOUR, card) == EPERM, "the reload had no effect"
                opens_again(one.sandbox)
                assert rules(there, one.sandbox.name) == held
            there.run("systemctl", "set-property", "--runtime", AGENT, "DevicePolicy=closed")
            assert opened_by(there, AGENT, card) == EPERM, "nor has the agent's service any card now"
            there.run("systemctl", "restart", AGENT)  # KillMode=process: the executor lives on
            opens_again(one.sandbox)
            assert rules(there, one.sandbox.name) == held
            (one.sandbox / "stop").touch()
            one.end("TASK_FINISHED")
            (seen,) = json.loads(one.stdout())
            assert json.loads(seen) == {"/dev/nvidia0": ENXIO, "nvidia0": ENXIO, "nvidia1": EPERM}
