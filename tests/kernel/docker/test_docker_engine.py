"""Containers of a real Docker Engine, and what the kernel lets them do.

Nodes of major 195 without a driver tell allowed from denied: opening one gives ENXIO if the device cgroup lets the
request through to the (absent) driver, EPERM if it does not.
"""

import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from isolator.agent.docker_engine import ContainerSettings, DockerEngine, Ended
from isolator.devices.docker_devices import verify
from isolator.runs.memory import Witness
from mesos_gpu.errors import BadConfiguration, Conflict, MesosGpuError, NotFound, Unavailable
from mesos_gpu.local.own_ports import free_port
from mesos_gpu.model.jobs.docker_options import DockerOptions
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.dockerd import Dockerd
from tests.doubles.images import busybox_layer, layer, save

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(dockerd.missing()), reason=dockerd.missing()),
]

ALLOWED, DENIED = "No such device or address", "Operation not permitted"
V1 = Path("/sys/fs/cgroup/devices")
needs_v1 = pytest.mark.skipif(not V1.is_dir(), reason=f"no cgroup v1 hierarchy of devices at {V1}")
NOBODY = "65534:65534"
APPLETS = ["sh", "cat", "echo", "env", "grep", "head", "id", "ls", "mknod", "mount", "sleep", "tail", "touch"]
_numbers = itertools.count()


def setuid_su() -> bytes:
    """Root has no password there: a su that is setuid, and is let, makes root of anybody."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, mode, data in (
            ("etc/passwd", 0o644, b"root::0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"),
            ("bin/su", 0o4755, dockerd.busybox().read_bytes()),
        ):
            member = tarfile.TarInfo(path)
            member.mode, member.size = mode, len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    # A default runtime as on hosts of NVIDIA's container toolkit, but deadly: whatever is left to it fails.
    with Dockerd("--add-runtime=nvidia=/bin/false", "--default-runtime=nvidia") as started:
        directory, base = tmp_path_factory.mktemp("images"), busybox_layer(dockerd.busybox(), APPLETS)
        busy = {"Env": ["PATH=/bin", "FROM=image", "NVIDIA_VISIBLE_DEVICES=all"]}
        started.load(save(directory, "busy", [base], busy))
        started.load(save(directory, "setuid", [base, setuid_su()], {"Env": ["PATH=/bin"]}))
        own = {"Env": ["PATH=/bin"], "Entrypoint": ["/bin/echo", "own"], "Cmd": ["words"], "User": "root"}
        started.load(save(directory, "own", [base], own))
        started.load(save(directory, "empty", [base]))
        yield started
    assert started.processes() == []
    assert started.mounts() == []
    assert started.cgroups() == []


@dataclass(frozen=True)
class Tasks:
    """Containers with names of their own, whose output is kept in files."""

    engine: DockerEngine
    directory: Path

    def name(self) -> str:
        return f"task.{os.getpid()}.{next(_numbers)}"

    def start(self, name: str, wish: ContainerSettings) -> tuple[int, threading.Thread]:
        self.engine.create(name, wish)
        output = self.engine.attach(name)
        try:
            pid = self.engine.start(name)
        except MesosGpuError:
            output.close()
            raise

        def copy() -> None:
            with self.out(name).open("wb") as out, self.err(name).open("wb") as err:
                output.copy(out.fileno(), err.fileno())

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        return pid, thread

    def run(self, wish: ContainerSettings) -> tuple[Ended, str, str]:
        name = self.name()
        try:
            _, thread = self.start(name, wish)
            ended = self.engine.wait(name)
            thread.join(60)
            assert not thread.is_alive()
        finally:
            self.engine.remove(name)
        return ended, self.out(name).read_text(), self.err(name).read_text()

    def out(self, name: str) -> Path:
        return self.directory / f"{name}.out"

    def err(self, name: str) -> Path:
        return self.directory / f"{name}.err"


@pytest.fixture
def engine(daemon: Dockerd) -> DockerEngine:
    return DockerEngine(str(daemon.socket))


@pytest.fixture
def tasks(engine: DockerEngine, tmp_path: Path) -> Tasks:
    return Tasks(engine, tmp_path)


def wish(command: str | None, **changes: object) -> ContainerSettings:
    return replace(ContainerSettings("busy", NOBODY, command), **changes)  # type: ignore[arg-type]


@pytest.fixture
def nodes(tmp_path: Path) -> Mapping[int, str]:
    """Cards 0 to 2 on the host, open to all users."""
    made = {}
    for minor in range(3):
        path = tmp_path / f"nvidia{minor}"
        os.mknod(path, stat.S_IFCHR, os.makedev(195, minor))
        path.chmod(0o666)
        made[minor] = str(path)
    return made


# --- what runs


def test_the_image_tells_its_configuration(engine: DockerEngine) -> None:
    local = engine.image("own")
    assert local is not None
    image = local.config
    assert (image.entrypoint, image.cmd, image.user) == (("/bin/echo", "own"), ("words",), "root")
    assert image.env == {"PATH": "/bin"}
    assert engine.image("absent:1") is None


def test_command_argv_and_the_images_own_entrypoint(tasks: Tasks) -> None:
    assert tasks.run(wish("echo $0 out; echo err >&2; exit 3")) == (Ended(3, False), "/bin/sh out\n", "err\n")
    assert tasks.run(wish(None, argv=("/bin/echo", "a b"), image="own"))[1] == "a b\n"
    assert tasks.run(wish(None, image="own"))[1] == "own words\n"
    with pytest.raises(BadConfiguration, match=r"[Nn]o command specified"):
        tasks.run(wish(None, image="empty"))
    with pytest.raises(BadConfiguration, match="no such file"):
        tasks.run(wish(None, argv=("/bin/none",)))
    with pytest.raises(NotFound, match="absent"):
        tasks.run(wish("true", image="absent"))


def test_user_groups_directory_and_environment(tasks: Tasks) -> None:
    asked = wish(
        "id -u; id -g; id -G; pwd; echo $FROM $NVIDIA_VISIBLE_DEVICES",
        user="1234:2345", groups=(7, 8), options=DockerOptions(directory="/tmp"),
        env={"FROM": "job", "NVIDIA_VISIBLE_DEVICES": "void"},
    )  # fmt: skip
    assert tasks.run(asked)[1].split() == ["1234", "2345", "2345", "7", "8", "/tmp", "job", "void"]


def test_names_servers_reaper_and_log_are_the_containers_own(tasks: Tasks) -> None:
    options = DockerOptions(
        hosts=("db:10.9.8.7",), dns=("10.9.8.53",), init=True, log_driver="json-file", log_options={"max-size": "1m"}
    )  # fmt: skip
    asked = wish("cat /etc/hosts /etc/resolv.conf; cat /proc/1/cmdline", options=options)
    said = tasks.run(asked)[1]
    assert "10.9.8.7" in said
    assert "nameserver 10.9.8.53" in said
    assert "init" in said.splitlines()[-1], "the first process is Docker's reaper"


def test_output_is_whole_and_in_order(tasks: Tasks) -> None:
    """1 MiB of each, written by turns."""
    script = """i=0; while [ $i -lt 1024 ]; do
        printf '%01023d\\n' $i; printf '%01023d\\n' $i >&2; i=$((i+1)); done"""
    ended, out, err = tasks.run(wish(script))
    assert ended.exit_status == 0
    assert [int(line) for line in out.split()] == list(range(1024))
    assert out == err
    assert len(out) == 1 << 20


def test_signals_reach_the_first_process(tasks: Tasks) -> None:
    name = tasks.name()
    try:
        tasks.start(name, wish("trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done"))
        wait_until("it is up", lambda: tasks.out(name).exists() and tasks.out(name).read_text())
        tasks.engine.signal(name, signal.SIGTERM)
        assert tasks.engine.wait(name).exit_status == 9
        tasks.engine.signal(name, signal.SIGTERM)  # it has ended: nothing happens
        tasks.start(name, wish("sleep 600"))  # the dead one makes room
        with pytest.raises(Conflict, match="is running"):
            tasks.engine.create(name, wish("true"))
        tasks.engine.signal(name, signal.SIGKILL)
        assert tasks.engine.wait(name) == Ended(137, False)
    finally:
        tasks.engine.remove(name)
        tasks.engine.remove(name)
    with pytest.raises(NotFound):
        tasks.engine.wait(name)


def test_container_that_exceeds_its_memory_is_reported(tasks: Tasks) -> None:
    """By the engine, or where cgroup v1 counts it, to who looks himself: the engine may hear of it too late."""
    name = tasks.name()
    try:
        tasks.engine.create(name, wish("sleep 0.5; tail -c 64m /dev/zero", mem_mib=16))
        pid = tasks.engine.start(name)
        witness = Witness(pid) if V1.is_dir() else None
        ended = tasks.engine.wait(name)
        seen = witness.end() if witness is not None else False
        assert (ended.exit_status, ended.oom_killed or seen) == (137, True)
    finally:
        tasks.engine.remove(name)


@needs_v1
def test_limits_are_the_kernels(tasks: Tasks, daemon: Dockerd) -> None:
    name = tasks.name()
    try:
        tasks.engine.create(name, wish("sleep 600", mem_mib=64, cpus=0.5))
        with pytest.raises(Conflict, match="never started"):
            tasks.engine.wait(name)
        pid = tasks.engine.start(name)
        assert int(cgroup(pid, "memory").joinpath("memory.limit_in_bytes").read_text()) == 64 << 20
        assert int(cgroup(pid, "cpu").joinpath("cpu.shares").read_text()) == 512
        size = os.statvfs(f"/proc/{pid}/root/dev/shm")
        assert size.f_blocks * size.f_frsize == 64 << 20
        told = daemon.ask("GET", f"/containers/{name}/json")["HostConfig"]
        assert (told["Runtime"], told["Privileged"], told["Init"]) == ("runc", False, False)
        assert os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net")
        for kind in ("mnt", "pid", "ipc"):
            assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
    finally:
        tasks.engine.remove(name)


@contextlib.contextmanager
def registry(directory: Path) -> Iterator[str]:
    """HOST:PORT of a real one."""
    address = f"127.0.0.1:{free_port()}"
    (directory / "registry.yml").write_text(
        json.dumps({
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": str(directory / "blobs")}},
            "http": {"addr": address},
        })
    )  # fmt: skip
    with (directory / "log").open("wb") as log, subprocess.Popen(
        ["docker-registry", "serve", directory / "registry.yml"], stdout=log, stderr=log
    ) as process:  # fmt: skip
        try:
            wait_until("the registry", lambda: b"listening on" in (directory / "log").read_bytes())
            yield address
        finally:
            process.terminate()


@pytest.mark.skipif(shutil.which("docker-registry") is None, reason="docker-registry is not installed")
def test_a_pull_from_a_registry(engine: DockerEngine, daemon: Dockerd, tmp_path: Path) -> None:
    with registry(tmp_path) as address:
        name = f"{address}/team/app"
        daemon.load(save(tmp_path, name, [layer({"data": os.urandom(100_000)})], {"Cmd": ["x"]}))
        daemon.ask("POST", f"/images/{name}/push?tag=latest", X_Registry_Auth="e30=")
        daemon.ask("DELETE", f"/images/{name}")
        assert engine.image(name) is None
        engine.pull(name)
        image = engine.image(name)
        assert image is not None
        assert image.config.cmd == ("x",)
        assert [each for each in image.names if "@" not in each] == [f"{name}:latest"]
        assert f"{name}@{engine.shown_digest(name)}" in image.names
        for absent in (f"{address}/team/none", f"{name}:2"):
            with pytest.raises(NotFound, match=absent):
                engine.pull(absent)
        daemon.ask("DELETE", f"/images/{name}")
        blob = max(tmp_path.rglob("blobs/sha256/*/*/data"), key=lambda path: path.stat().st_size)
        blob.write_bytes(bytes(blob.stat().st_size))
        with pytest.raises(MesosGpuError, match="could not be fetched"):
            engine.pull(name)
    with pytest.raises(MesosGpuError, match="refused"):
        engine.pull(name)


# --- what it may not


def test_container_opens_granted_cards_only(tasks: Tasks, nodes: Mapping[int, str], tmp_path: Path) -> None:
    """Also root of the container, and also by a node that the host's files bring in, gets no other."""
    tmp_path.chmod(0o755)
    for user in (NOBODY, "0:0"):
        asked = wish(
            "ls /dev/nvidia*; for n in /dev/nvidia1 /host/nvidia0 /host/nvidia1 /host/nvidia2; do cat $n; done",
            user=user, devices=((nodes[1], "/dev/nvidia1", "rw"),), binds=((str(tmp_path), "/host", True),),
        )  # fmt: skip
        _, out, err = tasks.run(asked)
        assert out == "/dev/nvidia1\n"
        assert [line.rpartition(": ")[2] for line in err.splitlines()] == [ALLOWED, DENIED, ALLOWED, DENIED]


def test_container_without_a_grant_has_no_cards(tasks: Tasks) -> None:
    """The image asks for all of them, as NVIDIA's images do."""
    _, out, err = tasks.run(wish("echo $NVIDIA_VISIBLE_DEVICES; ls -d /dev/nvidia* /usr/local/nvidia"))
    assert out == "all\n"
    assert err.count("No such file or directory") == 2


@pytest.mark.parametrize("user", [NOBODY, "0:0"])
def test_escapes_are_refused(tasks: Tasks, nodes: Mapping[int, str], user: str) -> None:
    readonly = "Read-only file system" if V1.is_dir() else "nonexistent directory"
    refusals = {
        "mknod /dev/shm/a c 195 0": DENIED,
        "mknod /dev/shm/b c 1 3": DENIED,
        "mount -t devtmpfs none /mnt": "permission denied (are you root?)",
        "mount -o bind /dev /mnt": "permission denied (are you root?)",
        "mount -o remount,rw /sys/fs/cgroup": "permission denied (are you root?)",
        "echo a >/sys/fs/cgroup/devices/devices.allow": readonly,
        "echo 1 >/sys/fs/cgroup/devices/cgroup.procs": readonly,
        "cat /dev/mem": "No such file or directory",
    }
    asked = wish(
        "; ".join([*refusals, "ls /dev/shm"]), user=user, devices=((nodes[0], "/dev/nvidia0", "rw"),)
    )
    ended, out, err = tasks.run(asked)
    assert (ended.exit_status, out) == (0, "")
    assert [line.rpartition(": ")[2] for line in err.splitlines()] == list(refusals.values())


def test_a_setuid_program_gains_nothing(tasks: Tasks, daemon: Dockerd) -> None:
    asked = wish("grep -e NoNewPrivs -e CapBnd /proc/self/status; id -u; su root -c 'id -u'", image="setuid")
    _, out, err = tasks.run(asked)
    assert out.split() == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1", "65534"]
    assert err != ""
    # The trap is armed: without our settings the same program makes root.
    body = {"Image": "setuid", "User": NOBODY, "Cmd": ["su", "root", "-c", "id -u > /tmp/who"]}
    body["HostConfig"] = {"NetworkMode": "host", "Runtime": "runc"}  # type: ignore[assignment]
    name = tasks.name()
    daemon.ask("POST", f"/containers/create?name={name}", json.dumps(body).encode())
    try:
        tasks.engine.start(name)
        assert tasks.engine.wait(name).exit_status == 0
        assert b"0\n" in daemon.ask("GET", f"/containers/{name}/archive?path=/tmp/who")
    finally:
        tasks.engine.remove(name)


def test_read_only_binds(tasks: Tasks, tmp_path: Path) -> None:
    """What is mounted below one stays out, where it would be writable."""
    tmp_path.chmod(0o777)
    inner = tmp_path / "inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", inner], check=True)
    try:
        (inner / "hidden").touch()
        binds = ((str(tmp_path), "/ro", True), (str(tmp_path), "/rw", False))
        _, out, err = tasks.run(wish("touch /ro/a; ls /ro/inner; touch /rw/b && echo written", binds=binds))
    finally:
        subprocess.run(["umount", inner], check=True)
    assert out == "written\n"
    assert "Read-only file system" in err
    assert (tmp_path / "b").exists()


@pytest.mark.parametrize("source", ["/", "/dev", "/dev/shm", "/proc/1", "/sys", "/run"])
def test_the_host_is_not_bound(engine: DockerEngine, tmp_path: Path, source: str) -> None:
    disguise = tmp_path / "harmless"
    disguise.symlink_to(source)
    for path in (source, f"/tmp/..{source}", str(disguise)):
        with pytest.raises(BadConfiguration, match="cannot be mounted in a container"):
            engine.create("never", wish("true", binds=((path, "/in", True),)))


def test_devices_that_are_granted_are_character_devices(engine: DockerEngine, tmp_path: Path) -> None:
    for path in ("/dev", str(tmp_path), str(tmp_path / "absent")):
        with pytest.raises(BadConfiguration):
            engine.create("never", wish("true", devices=((path, "/dev/nvidia0", "rw"),)))


# --- below a Mesos container


def cgroup(pid: int, controller: str) -> Path:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return Path("/sys/fs/cgroup") / controller / path.lstrip("/")
    raise AssertionError(f"{pid} has no {controller}")


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[str]:
    """Make a cgroup as Mesos does for a container: in some hierarchies, with this list of devices."""
    name = f"/mesos-gpu-test-{os.getpid()}-{next(_numbers)}"
    made = [Path(f"/sys/fs/cgroup/{kind}{name}") for kind in ("devices", "memory")]
    for path in made:
        path.mkdir()
    yield name
    for path in made:
        path.rmdir()  # that fails if something was left below
    assert list(Path("/sys/fs/cgroup").glob(f"*{name}")) == []


@needs_v1
def test_container_is_below_its_parent_cgroup(tasks: Tasks, parent: str, nodes: Mapping[int, str]) -> None:
    devices = V1 / parent.lstrip("/")
    (devices / "devices.deny").write_text("a")
    for rule in ("c *:* m", "b *:* m", "c 1:* rwm", "c 5:* rwm", "c 136:* rwm", "c 10:200 rwm"):
        (devices / "devices.allow").write_text(rule)
    asked = wish("sleep 600", devices=((nodes[1], "/dev/nvidia1", "rw"),), cgroup_parent=parent)
    name = tasks.name()
    try:
        tasks.engine.create(name, asked)
        with pytest.raises(MesosGpuError, match="operation not permitted"):
            tasks.engine.start(name)  # the parent does not have the card
        (devices / "devices.allow").write_text("c 195:1 rw")
        tasks.engine.create(name, asked)
        pid = tasks.engine.start(name)
        for kind in ("devices", "memory", "freezer"):
            path = cgroup(pid, kind)
            assert path.parent == Path("/sys/fs/cgroup") / kind / parent.lstrip("/")
        held = (cgroup(pid, "devices") / "devices.list").read_text().splitlines()
        assert [rule for rule in held if rule.startswith("c 195:")] == ["c 195:1 rw"]
        verify(pid, [(195, 1)], [195])
        for expected in ([], [(195, 1), (195, 0)]):
            with pytest.raises(MesosGpuError, match=r"/dev of the container has the devices \[\(195, 1\)\]"):
                verify(pid, expected, [195])
        # what the executor takes from the parent, the kernel takes from the container at once
        (devices / "devices.deny").write_text("c 195:1 rw")
        assert "c 195:1" not in (cgroup(pid, "devices") / "devices.list").read_text()
        with pytest.raises(MesosGpuError, match="its device cgroup"):
            verify(pid, [(195, 1)], [195])
    finally:
        tasks.engine.remove(name)
    verify(pid, [(195, 1)], [195])  # what has ended has nothing


# --- what goes wrong


def test_a_callers_death_leaves_a_container_that_its_label_finds(tasks: Tasks, daemon: Dockerd) -> None:
    name = tasks.name()
    script = f"""
import sys
import tarfile
from isolator.agent.docker_engine import ContainerSettings, DockerEngine
engine = DockerEngine({str(daemon.socket)!r})
wish = ContainerSettings("busy", "65534:65534", "sleep 600", labels={{"mesos_gpu.task": "job.7"}})
engine.create({name!r}, wish)
output = engine.attach({name!r})
print(engine.start({name!r}), flush=True)
output.copy(1, 2)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None
        pid = int(caller.stdout.readline())
        caller.kill()
    assert tasks.engine.containers("mesos_gpu.task") == {name: "job.7"}
    assert Path(f"/proc/{pid}").exists()
    tasks.engine.remove(name)
    assert not Path(f"/proc/{pid}").exists()
    assert tasks.engine.containers("mesos_gpu.task") == {}


def test_engine_that_is_missing_gives_a_remedy_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"docker\.sock") as caught:
        DockerEngine(str(tmp_path / "docker.sock")).image("busy")
    assert "MESOS_GPU_DOCKER_SOCKET" in caught.value.remedy


@pytest.mark.parametrize("live_restore", [True, False], ids=["live-restore", "without"])
def test_a_restart_of_the_engine(tmp_path: Path, live_restore: bool) -> None:
    with Dockerd(*["--live-restore"] * live_restore) as own:
        base = busybox_layer(dockerd.busybox(), APPLETS)
        own.load(save(tmp_path, "busy", [base], {"Env": ["PATH=/bin"]}))
        tasks = Tasks(DockerEngine(str(own.socket)), tmp_path)
        go = tmp_path / "go"
        tmp_path.chmod(0o755)
        name = tasks.name()
        script = (
            "trap 'exit 3' TERM; echo before; until [ -e /host/go ]; do sleep 0.02; done; echo after; exit 5"
        )
        pid, thread = tasks.start(name, wish(script, binds=((str(tmp_path), "/host", True),)))
        wait_until("it is up", lambda: tasks.out(name).exists() and tasks.out(name).read_text())
        ended: list[Ended] = []
        waiter = threading.Thread(target=lambda: ended.append(tasks.engine.wait(name)), daemon=True)
        waiter.start()
        own.end(signal.SIGKILL if live_restore else signal.SIGTERM)
        own.start()
        if live_restore:
            assert Path(f"/proc/{pid}").exists()
            wait_until("it is attached again", lambda: b"may be missing" in tasks.err(name).read_bytes())
        go.touch()
        waiter.join(30)
        thread.join(30)
        if live_restore:
            assert ended == [Ended(5, False)]
            assert tasks.out(name).read_text() == "before\nafter\n"
        else:
            assert "live-restore is off" in ended[0].error
        assert not thread.is_alive()
        tasks.engine.remove(name)
