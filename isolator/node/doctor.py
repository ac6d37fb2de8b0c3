"""Doctor: checks whether this host is fit to run GPU tasks; each finding names its remedy.

Files are read below a root, so that a test may provide a host of its own; some checks try the kernel itself,
and only where the root is the real one.
"""

import contextlib
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from isolator.agent.docker_engine import DockerEngine
from isolator.agent.flags import flags_of
from isolator.agent.tls import AgentTls
from isolator.confinement import apart, fence
from isolator.confinement.enclosure import NODES
from isolator.devices import cgroups, facts
from isolator.devices.cgroups import Cgroup
from isolator.devices.rules import CONTROL_MINOR, MODESET_MINOR, Device, nvidia_devices
from isolator.gpus.share_claims import CLOSED
from isolator.host import control_ports, hardening, port_ranges, processes, user_pool
from isolator.host.own_code import places, weak
from isolator.host.port_ranges import PortGrant
from isolator.node import mesos_access, reaper, task_limits, task_ports
from isolator.node.findings import Finding, Host, Level
from isolator.node.private_files import CHECK, look_at_work_dir, private_files
from isolator.program import statement
from isolator.secrets import exposure
from isolator.shares.abilities import CAN, Abilities, words_of
from isolator.shares.shim.region import regions
from mesos_gpu.adapters.credentials import VARIABLE, read
from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.policy.gpus.health import at_first_sight
from mesos_gpu.ports import GpuProbe
from volumes.keys import default_path
from volumes.model import DriverFiles
from volumes.store import Store, verify
from volumes.version import see_platform

AGENT: Final = "127.0.0.1:5051"  # default endpoint of a Mesos agent
MAX_SHOWN: Final = 5
DOCKER_LABEL: Final = "mesos_gpu.cgroups"  # label of each container that isolator.agent.docker_engine makes
NAMESPACE_S: Final = 30.0
#: Capabilities that executors need, as bits of linux/capability.h. NET_ADMIN: to attach device programs to
#: cgroups.
_CAPABILITIES: Final = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_ADMIN": 21,
    "CAP_MKNOD": 27,
    "CAP_BPF": 39,
}
_ONLY_V2: Final = ("CAP_NET_ADMIN", "CAP_BPF")
#: Files that the driver volume must have for CUDA programs and nvidia-smi.
_LIBRARIES: Final = ("lib64/libcuda.so.1", "lib64/libnvidia-ml.so.1", "bin/nvidia-smi")


Check = Callable[[Host], Iterable[Finding]]


def diagnose(
    probe: GpuProbe, directory: Path, env: Mapping[str, str], root: Path = Path("/")
) -> tuple[Finding, ...]:
    """Run all checks of this host; return their findings.

    A check that raises an error yields a FAIL of its own, and the others go on.

    Args:
        probe: Probe of the GPUs; it is closed.
        directory: The node directory.
        env: Environment that the agent gives to executors.
        root: Root directory of the host.
    """
    findings: list[Finding] = []
    inventory = None
    try:
        inventory = at_first_sight(probe.survey(), time.time())
    except MesosGpuError as error:
        findings.append(Finding("nvml", Level.FAIL, error.what, error.remedy))
    finally:
        probe.close()
    host = Host(directory, inventory, env, root)
    for name, check in CHECKS.items():
        try:
            findings.extend(check(host))
        except MesosGpuError as error:
            findings.append(Finding(name, Level.FAIL, error.what, error.remedy))
        except OSError as error:
            findings.append(Finding(name, Level.FAIL, str(error), "run as root"))
    return tuple(findings)


def driver(host: Host) -> Iterator[Finding]:
    """Check the kernel module of the driver, and NVML."""
    if host.simulated:
        text = f"not needed: {len(host.gpus())} simulated GPUs"
        yield Finding("driver", Level.OK, text)
        return
    version = host.driver_version()
    see_platform(host.root, version, lambda: _found(host.root))
    if version is None and not facts.read_driver(host.root).loaded:
        text = "no NVIDIA driver is loaded: right for a host without GPUs"
        yield Finding("driver", Level.WARN, text, "on a GPU host: modprobe nvidia, and see dmesg")
        return
    if version is None:
        text = "the driver has device numbers, but no /proc/driver/nvidia/version"
        yield Finding("driver", Level.WARN, text, "see dmesg; reload the driver")
    else:
        yield Finding("driver", Level.OK, f"version {version}")
    if host.inventory:
        yield _nvml(host)


def _found(root: Path) -> DriverFiles:
    # deferred: needed only on platforms that have their own kind of driver
    from volumes.discover import discover

    return discover(root)


def _nvml(host: Host) -> Finding:
    """Compare NVML's GPUs with the driver's, and report GPUs that are not healthy."""
    cards, count = len(list(host.root.glob("proc/driver/nvidia/gpus/*"))), len(host.gpus())
    if not count:
        text = f"NVML finds no GPU, the driver has {cards}"
        return Finding(
            "nvml", Level.FAIL, text, "install libnvidia-ml.so.1 of the driver's version, and nvidia-ml-py"
        )
    if cards > count:
        text = f"NVML sees {count} of {cards} cards"
        return Finding("nvml", Level.WARN, text, "see dmesg for XIDs; a card may have fallen off the bus")
    sick = [gpu for gpu in host.gpus() if gpu.health is not Health.OK]
    if sick:
        text = "; ".join(f"{gpu.id} is {gpu.health.value}: {gpu.reason}" for gpu in sick)
        return Finding("nvml", Level.WARN, text, "see `mesos-gpu gpu health`; they get no tasks")
    return Finding("nvml", Level.OK, f"{count} GPUs, all healthy")


def libraries(host: Host) -> Iterator[Finding]:
    """Check the driver's libraries: on the host for tasks without an image, in the driver volume for images."""
    version = host.driver_version()
    if version is None:
        return
    cache = host.root / "etc/ld.so.cache"
    if not cache.exists() or b"libcuda.so.1\0" not in cache.read_bytes():
        text = "libcuda.so.1 is not in the linker's cache: CUDA programs without an image will not start"
        yield Finding(
            "libraries", Level.WARN, text, f"install the libraries of driver {version}; run ldconfig"
        )
    else:
        yield Finding("libraries", Level.OK, "libcuda.so.1 is in the linker's cache")
    yield _volume(host, version)


def _volume(host: Host, version: str) -> Finding:
    """Check that the driver volume exists, is unchanged since it was built, and has the most important files."""
    path = Store(default_path(host.env)).path_of(version)
    store = Store(host.below(default_path(host.env)))
    if store.current(version) is None:
        text = f"{path} does not exist: images that need the driver cannot run"
        return Finding("volume", Level.WARN, text, "see why: mesos-gpu volume build")
    try:
        volume = store.get(version)
        wrong = verify(volume)
    except (MesosGpuError, OSError) as error:
        text = error.what if isinstance(error, MesosGpuError) else str(error)
        return Finding("volume", Level.FAIL, text, "mesos-gpu volume build --anew")
    if wrong:
        text = f"{path} has changed since it was built: {'; '.join(wrong)}"
        return Finding("volume", Level.FAIL, text, "mesos-gpu volume build --anew")
    missing = [name for name in _LIBRARIES if not os.path.lexists(volume.path / name)]
    if missing and not volume.simulated:
        text = f"{path} has no {', '.join(missing)}"
        return Finding("volume", Level.WARN, text, "install what the driver lacks: mesos-gpu volume plan")
    return Finding("volume", Level.OK, f"{path}, {len(volume.files)} files as they were built")


def devices(host: Host) -> Iterator[Finding]:
    """Check that nodes under /dev have the driver's current numbers, and that NVML and the driver agree on
    minor numbers.
    """
    numbers = facts.read_driver(host.root, host.env)
    if not numbers.loaded or host.simulated:
        return
    minors = facts.minors_of_driver(host.root)
    for gpu in host.gpus():
        if minors.get(gpu.id, gpu.minor) != gpu.minor:
            text = f"{gpu.id} is minor {gpu.minor} for NVML and {minors[gpu.id]} for the driver"
            yield Finding("devices", Level.FAIL, text, "reload the driver, or reboot")
    if "nvidia-uvm" not in numbers.majors:
        tool = any((host.root / d / "nvidia-modprobe").exists() for d in ("usr/bin", "bin", "usr/sbin"))
        text = "the kernel module nvidia-uvm is not loaded"
        remedy = "modprobe nvidia-uvm, or install nvidia-modprobe"
        yield Finding("devices", Level.WARN if tool else Level.FAIL, text, remedy)
    wrong, missing, right = _nodes(host, nvidia_devices(numbers, (gpu.minor for gpu in host.gpus())))
    for text in wrong:
        yield Finding("devices", Level.FAIL, text, "remove it; nvidia-modprobe -c 0 -u makes it again")
    if missing:
        text = f"missing: {', '.join(missing)} (tasks get nodes of their own)"
        yield Finding("devices", Level.WARN, text, "nvidia-modprobe -c 0 -u")
    if right and not wrong:
        yield Finding("devices", Level.OK, f"{len(right)} nodes, numbers as in /proc/devices")


def _nodes(host: Host, expected: Sequence[Device]) -> tuple[list[str], list[str], list[str]]:
    """Compare device nodes with the expected ones; return faults in words, paths of missing nodes, and paths
    of right ones.
    """
    wrong, missing, right = [], [], []
    for device in expected:
        try:
            status = os.stat(host.below(Path(device.path)))
        except FileNotFoundError:
            missing.append(device.path)
            continue
        number = (os.major(status.st_rdev), os.minor(status.st_rdev))
        if not stat.S_ISCHR(status.st_mode):
            wrong.append(f"{device.path} is not a character device")
        elif number != (device.major, device.minor):
            wrong.append(
                f"{device.path} has numbers {number[0]}:{number[1]}, the driver's are {device.major}:{device.minor}"
            )
        else:
            right.append(device.path)
    return wrong, missing, right


def isolation(host: Host) -> Iterator[Finding]:
    """Check that cgroups can deny devices: one is made, set and removed, which with version 2 loads a BPF
    program.
    """
    mounts = cgroups.mounted(host.root)
    description = ", ".join(f"{version} at {path}" for version, path in mounts.items())
    if not host.real:
        level, remedy = (Level.OK, "") if mounts else (Level.FAIL, "mount cgroup2 on /sys/fs/cgroup")
        yield Finding(
            "isolation", level, description or "no cgroups that control devices are mounted", remedy
        )
        return
    version = facts.isolation_name(host.env)
    if version == "off":
        text = "MESOS_GPU_ISOLATION=off: every task can use every GPU"
        yield Finding(
            "isolation", Level.WARN, text, "unset it, unless all users of this host trust each other"
        )
        return
    trial = Cgroup(version, mounts[version] / cgroups.OWN_ROOT / f".doctor-{os.getpid()}", own=True)
    try:
        trial.create()
        trial.allow(())
    finally:
        trial.remove()
    yield Finding(
        "isolation", Level.OK, f"{version}: a device cgroup was made, set and removed ({description})"
    )


def ports(host: Host) -> Iterator[Finding]:
    """Check that rules which deny tasks the agent's port can be made, tried and removed: a task could command
    the agent.
    """
    flags = _known_flags(host)
    needs_credentials = flags is not None and flags.get("authenticate_http_readwrite") == "true"
    if control_ports.is_off(host.env):
        whose = (
            "its agent asks for credentials"
            if needs_credentials
            else "its agent runs commands as root for any caller"
        )
        text = f"port rules are off, so tasks reach the ports that command the cluster; {whose}"
        remedy = (
            f"unset {control_ports.SETTING}=off and MESOS_GPU_ISOLATION=off, or start agents with credentials"
        )
        yield Finding("ports", Level.WARN if needs_credentials or flags is None else Level.FAIL, text, remedy)
        return
    more = len(control_ports.listed(host.env))
    if not host.real:
        return
    try:
        port = int((host.env.get("MESOS_GPU_AGENT") or AGENT).rpartition(":")[2])
        fence.trial(f".doctor-{os.getpid()}", port, PortGrant(port_ranges.listed(host.env)))
    except (MesosGpuError, OSError) as error:
        why = error.what if isinstance(error, MesosGpuError) else str(error)
        text = f"no task can start, as port rules that keep it from commanding the agent fail: {why}"
        remedy = f"use Linux 4.18 or newer; or do without the rules: {control_ports.SETTING}=off"
        yield Finding("ports", Level.FAIL, text, remedy)
        return
    listed = f" and {more} more" if more else ""
    text = f"tasks cannot reach agents, master, scheduler{listed}: a rule was made, tried and removed"
    yield Finding("ports", Level.OK, text)


def privileges(host: Host) -> Iterator[Finding]:
    """Check the user and the capabilities of this process, which should run as the agent runs executors."""
    fields = dict(
        line.split(":\t", 1) for line in host.text("proc/self/status").splitlines() if ":\t" in line
    )
    effective = int(fields.get("CapEff", "0"), 16)
    required = dict(_CAPABILITIES)
    if "cgroup1" in cgroups.mounted(host.root) and host.env.get("MESOS_GPU_ISOLATION") != "cgroup2":
        required = {name: bit for name, bit in required.items() if name not in _ONLY_V2}
    missing = [name for name, bit in required.items() if not effective >> bit & 1]
    uid = fields.get("Uid", "?").split()[0]
    if uid != "0" or missing:
        text = f"user id {uid}" + (f", without {', '.join(missing)}" if missing else "")
        yield Finding("privileges", Level.FAIL, text, "run the agent, and this command, as root")
    else:
        yield Finding("privileges", Level.OK, f"root with {', '.join(required)}")


def namespaces(host: Host) -> Iterator[Finding]:
    """Check that a mount namespace can be made, in a child process."""
    if not host.real:
        return
    command = statement("from isolator.devices.view import enter; enter()")
    done = subprocess.run(command, capture_output=True, text=True, timeout=NAMESPACE_S, check=False)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2] or f"the trial ended with status {done.returncode}"
        remedy = "run as root, and outside of containers that forbid unshare"
        yield Finding("namespaces", Level.FAIL, f"no mount namespace can be made: {why}", remedy)
    else:
        yield Finding("namespaces", Level.OK, "a mount namespace can be made")


def _answered(check: str, answers: Iterable[hardening.Answer]) -> Iterator[Finding]:
    """Turn answers on the host's hardening into findings."""
    for answer in answers:
        yield Finding(check, Level.WARN if answer.remedy else Level.OK, answer.text, answer.remedy)


def users(host: Host) -> Iterator[Finding]:
    """Check that the user "nobody" exists, for jobs without rights."""
    names = {line.split(":")[0] for line in host.text("etc/passwd").splitlines()}
    if "nobody" in names:
        yield Finding("users", Level.OK, "the user nobody exists, for jobs without rights")
    else:
        text = "the user nobody does not exist: its jobs cannot start"
        yield Finding("users", Level.WARN, text, "useradd --system nobody")


def own_code(host: Host) -> Iterator[Finding]:
    """Check that tasks cannot write the code that executors import."""
    if not host.real:
        return
    weaknesses = weak(places(), users=(0, os.geteuid()), groups=(0, os.getegid()))
    for text in weaknesses[:MAX_SHOWN]:
        remedy = "install mesos_gpu, as root, where only root can write; chown root, chmod go-w"
        yield Finding("own code", Level.FAIL, f"tasks may run code as root: {text}", remedy)
    if len(weaknesses) > MAX_SHOWN:
        more = f"{len(weaknesses) - MAX_SHOWN} more paths can be written by others"
        yield Finding("own code", Level.FAIL, more, "install mesos_gpu again, as root")
    if not weaknesses:
        yield Finding("own code", Level.OK, "only root can write what executors import")


def ledger(host: Host) -> Iterator[Finding]:
    """Check that the ledger can be opened and is intact."""
    opened = host.ledger()
    if opened is None:
        yield Finding("ledger", Level.OK, f"none yet in {host.directory}")
        return
    holdings = opened.holdings()
    gpus = sum(len(holding.gpus) for holding in holdings if holding.share is None)
    shares = sum(len(holding.gpus) for holding in holdings if holding.share is not None)
    more = f", and {shares} shares of GPUs" if shares else ""
    yield Finding("ledger", Level.OK, f"intact: {len(holdings)} tasks hold {gpus} GPUs{more}")
    for row in opened.cards():
        if row.kind == CLOSED:
            text = f"{row.gpu} takes no more shares: {row.what}"
            yield Finding(
                "ledger", Level.WARN, text, "end the tasks that share it; it takes shares again then"
            )


def leftovers(host: Host) -> Iterator[Finding]:
    """Check for remains of dead tasks, of every kind."""
    remains = [*_dead(host), *_stray_paths(host), *_stray_containers(host)]
    yield from remains or [Finding("leftovers", Level.OK, "no remains of dead tasks")]


def _dead(host: Host) -> Iterator[Finding]:
    books = host.ledger()
    if books is None:
        return
    for holding in books.holdings():
        if not books.alive(holding):
            held = ", ".join(holding.gpus) or "no GPU"
            text = f"the executor of {holding.task} is dead, but the task still holds {held}"
            remedy = "the node monitor cleans up within seconds: check that it runs (mesos-gpu nodes)"
            yield Finding("leftovers", Level.WARN, text, remedy)


def _stray_paths(host: Host) -> Iterator[Finding]:
    """Yield device nodes, cgroups and files of shares that are a trace of no holding; those of dead tasks are
    reported above.
    """
    mounts = sorted({*cgroups.mount_points(host.root).values()})
    places = [NODES, *(mount / cgroups.OWN_ROOT for mount in mounts)]
    seen = [place / p.name for place in places for p in sorted(host.below(place).glob("*")) if p.is_dir()]
    seen += sorted(regions(host.directory).glob("*"))
    # Read after listing the paths: a trace is in the ledger before its path is made.
    accounted = {trace.what for holding in host.holdings() for trace in holding.traces}
    alive = _in_cgroups(host)
    for path in seen:
        if str(path) not in accounted and path.name not in alive:
            of_files = path.parent in (NODES, regions(host.directory))
            remedy = f"rm -r {path}" if of_files else f"end what is in it, then: rmdir {path}"
            yield _stray(host, str(path), remedy)


def _in_cgroups(host: Host) -> set[str]:
    """Return all names in cgroup paths of living processes: a task of another node directory is no leftover."""
    texts = (host.text(f"proc/{path.name}/cgroup") for path in host.below(Path("/proc")).glob("[0-9]*"))
    return {name for text in texts for line in text.splitlines() for name in line.split("/")}


def _stray(host: Host, what: str, remedy: str) -> Finding:
    """Return the finding for something that belongs to no task of this node directory."""
    text = f"{what} belongs to no task recorded in {host.directory}"
    return Finding(
        "leftovers",
        Level.WARN,
        text,
        f"{remedy}; unless another agent of this host, with another node directory, uses it",
    )


def _stray_containers(host: Host) -> Iterator[Finding]:
    if not host.docker_socket().exists():
        return
    try:
        names = sorted(DockerEngine(str(host.docker_socket())).containers(DOCKER_LABEL))
    except Unavailable:
        return  # reported by the check `docker`
    traces = [trace for holding in host.holdings() for trace in holding.traces if trace.kind == "docker"]
    accounted = {trace.what.partition(" ")[2] for trace in traces}
    for name in names:
        if name not in accounted:
            yield _stray(host, f"the Docker container {name}", f"docker rm -f {name}")


def gpu_users(host: Host) -> Iterator[Finding]:
    """Check for processes that have a GPU's node open and belong to no living task."""
    numbers = facts.read_driver(host.root)
    if not numbers.loaded or host.simulated:
        return
    by_minor = {gpu.minor: gpu.id for gpu in host.gpus()}
    pids: dict[GpuId, list[int]] = {gpu.id: [] for gpu in host.gpus()}
    for pid, minor in _openers(host, numbers.gpu_major):
        if minor in by_minor:
            pids[by_minor[minor]].append(pid)
    books = host.ledger()
    if books:
        strange = reaper.strangers(books, pids)
    else:
        strange = {
            gpu: f"pids {', '.join(map(str, strangers))}" for gpu, strangers in pids.items() if strangers
        }
    for gpu, user_list in sorted(strange.items()):
        remedy = "end it, or keep such processes off hosts of the platform: the GPU gets no tasks meanwhile"
        yield Finding("gpu users", Level.WARN, f"{gpu}: {user_list}", remedy)
    if not strange:
        busy = sum(bool(users) for users in pids.values())
        yield Finding("gpu users", Level.OK, f"{busy} GPUs in use, only by tasks of the platform")


def _openers(host: Host, major: int) -> Iterator[tuple[int, int]]:
    """Yield (pid, minor) of processes with a GPU's node open by any path, except this one and its children
    (NVML).
    """
    openers: set[tuple[int, int]] = set()
    own = {os.getpid(), *processes.descendants(os.getpid())}
    for directory in host.root.glob("proc/[0-9]*/fd"):
        pid = int(directory.parent.name)
        for name in () if pid in own else _entries(directory):
            try:
                status = os.stat(directory / name)
            except OSError:
                continue  # closed meanwhile
            minor = os.minor(status.st_rdev)
            control = minor in (CONTROL_MINOR, MODESET_MINOR)
            if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == major and not control:
                openers.add((pid, minor))
    yield from sorted(openers)


def _entries(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []  # the process ended meanwhile


def docker(host: Host) -> Iterator[Finding]:
    """Check the Docker Engine, which only jobs with `container_engine: docker` need."""
    path = host.docker_socket()
    if not path.exists():
        yield Finding("docker", Level.OK, "no Docker Engine: jobs that ask for it do not run on this host")
        return
    try:
        facts_of_engine = DockerEngine(str(path)).facts()
    except Unavailable as error:
        yield Finding("docker", Level.WARN, error.what, error.remedy)
        return
    yield Finding(
        "docker",
        Level.OK,
        f"Docker Engine {facts_of_engine.version}, {facts_of_engine.cgroup_driver} cgroups",
    )


def agent(host: Host) -> Iterator[Finding]:
    """Check the flags of this host's Mesos agent."""
    flags = _agent_flags(host)
    if flags is None:
        text = f"no Mesos agent answers at {AGENT}; MESOS_GPU_AGENT=HOST:PORT names another"
        yield Finding("agent", Level.OK, text)
        return
    named = host.env.get("MESOS_GPU_AGENT") or AGENT
    yield from [*_flag_problems(flags), *look_at_work_dir(host, flags, "agent")] or [
        Finding("agent", Level.OK, f"{named}: flags are right")
    ]


def names(host: Host) -> Iterator[Finding]:
    """Check that this host's Mesos agent authenticates callers, and that its access control lists refuse by
    default.
    """
    daemon = mesos_access.Daemon(
        mesos_access.AGENT, host.env.get("MESOS_GPU_AGENT") or AGENT, AgentTls.from_environment(host.env)
    )
    try:
        daemon.open_to_all()
    except OSError:  # reported by the check `agent`
        yield Finding(mesos_access.AGENT, Level.OK, f"no agent answers at {daemon.endpoint}")
        return
    try:
        flags = _agent_flags(host) or {}
        yield from [*mesos_access.looked_at(daemon, flags), *mesos_access.secret_files(host, flags)]
    except Unavailable as error:  # the agent does not show its flags
        yield Finding(mesos_access.AGENT, Level.WARN, error.what, error.remedy)


def _agent_flags(host: Host) -> Mapping[str, str] | None:
    """Return the flags of this host's agent; None if none is named and none answers at the default endpoint.

    Raises:
        Unavailable: The agent that MESOS_GPU_AGENT names does not answer.
    """
    named = host.env.get("MESOS_GPU_AGENT")
    try:
        return flags_of(
            named or AGENT, authorization=_authorization(host), tls=AgentTls.from_environment(host.env)
        )
    except Unavailable:
        if named:
            raise
        return None


def _known_flags(host: Host) -> Mapping[str, str] | None:
    """Return the flags of the host's agent; None if no agent answers, which the check `agent` reports."""
    with contextlib.suppress(Unavailable):
        return _agent_flags(host)
    return None


def _authorization(host: Host) -> dict[str, str]:
    named = host.env.get(VARIABLE)
    return {"Authorization": read(host.below(Path(named))).header} if named else {}


def _flag_problems(flags: Mapping[str, str]) -> Iterator[Finding]:
    """Check an agent's flags for isolators, image providers and GPU resources."""
    isolators = set(flags.get("isolation", "").split(","))
    if "gpu/nvidia" in isolators:
        text = "the isolator gpu/nvidia chooses cards by itself, not those that the task is granted"
        yield Finding("agent", Level.FAIL, text, "remove gpu/nvidia from --isolation")
    yield from _answered("agent", hardening.images(isolators, flags.get("image_providers", "").split(",")))
    gpus = re.search(r"\bgpus(?P<role>\([^)]*\))?:", flags.get("resources", ""))
    if not gpus:
        text = "--resources names no gpus: the agent offers none"
        yield Finding(
            "agent",
            Level.WARN,
            text,
            "add gpus:N to --resources, with N the number of GPUs that NVML reports",
        )
    elif gpus["role"] in (None, "(*)") and flags.get("default_role", "*") == "*":
        text = "its GPUs have no role: other frameworks may be offered them, and use cards that tasks hold"
        remedy = "start it with --default_role=ROLE, and the scheduler with --role=ROLE"
        yield Finding("agent", Level.WARN, text, remedy)


def shares(host: Host) -> Iterator[Finding]:
    """Check how shares of a card can be enforced; one finding for each group of cards with the same answer."""
    if host.inventory is None or not host.gpus() or not (host.real or host.simulated):
        return
    gpus = Abilities(host.env).at_once(host.inventory).gpus
    texts: dict[str, list[str]] = {}
    for gpu in gpus:
        texts.setdefault(words_of(gpu.sharing), []).append(gpu.id)
    for text, cards in texts.items():
        prefix = "" if len(texts) == 1 else f"{', '.join(cards)}: "
        if text.startswith(CAN):
            yield Finding("shares", Level.OK, prefix + text)
        else:
            remedy = "not needed if jobs use whole GPUs; shares with isolation `any` take equal turns"
            yield Finding("shares", Level.WARN, prefix + text, remedy)


CHECKS: Final[Mapping[str, Check]] = {
    "driver": driver,
    "libraries": libraries,
    "devices": devices,
    "isolation": isolation,
    "ports": ports,
    task_ports.PORTS: lambda host: task_ports.look_at_ports(host, _known_flags(host)),
    task_ports.METADATA: task_ports.look_at_metadata,
    task_ports.PROOF: task_ports.look_at_proof,
    task_limits.LIMITS: lambda host: task_limits.look_at_limits(host, _known_flags(host)),
    "privileges": privileges,
    "namespaces": namespaces,
    "tracing": lambda host: _answered("tracing", hardening.tracing(host.text, landlock=apart.has_landlock())),
    "signals": lambda host: _answered("signals", hardening.signals(scoped=apart.has_scopes(host.env))),
    "commands": lambda host: _answered("commands", hardening.commands(host.text)),
    "links": lambda host: _answered("links", hardening.links(host.text)),
    "secrets": lambda host: _answered("secrets", [exposure.answer(host.env)]),
    "userns": lambda host: _answered("userns", hardening.user_namespaces(host.text)),
    "user pool": lambda host: _answered("user pool", [user_pool.look(host.env)]),
    "users": users,
    "own code": own_code,
    "ledger": ledger,
    "leftovers": leftovers,
    "gpu users": gpu_users,
    "shares": shares,
    "docker": docker,
    "agent": agent,
    mesos_access.AGENT: names,
    CHECK: private_files,
}
