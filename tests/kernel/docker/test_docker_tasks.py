"""Tasks with an image, run by the executor through a real Docker Engine: the same guarantees as without."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.agent.docker_engine import DockerEngine
from isolator.devices.facts import write_inventory
from isolator.host.processes import descendants
from isolator.node.reaper import audit, reap, strangers
from isolator.shares.shim.region import region_of
from isolator.shares.watch import Watch
from mesos_gpu.libmesos import helpers
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.jobs.docker_options import DockerOptions
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.wire.mesos.checks import encode
from tests.conftest import wait_until
from tests.doubles import dockerd
from tests.doubles.dockerd import Dockerd
from tests.doubles.images import busybox_layer, layer, save
from tests.doubles.scripted_agent import ScriptedAgent
from tests.endings import CASES
from tests.hosts import GPUS, INVENTORY, Host, changed_executor, driver_volume, host
from tests.kernel.conftest import needs

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(bool(dockerd.missing()), reason=dockerd.missing())]
APPLETS = [
    "sh",
    "wget",
    "cat",
    "echo",
    "env",
    "id",
    "ls",
    "mknod",
    "mount",
    "sleep",
    "touch",
    "rm",
    "grep",
    "sort",
    "test",
    "mkfifo",
    "setsid",
]
CUDA = json.loads((Path(__file__).parents[2] / "data/cuda-image/config.json").read_text())
ALLOWED, DENIED, ABSENT = "No such device or address", "Operation not permitted", "No such file or directory"
NOWHERE = "no-such-registry.invalid/plain:1"
NEW = replace(INVENTORY, driver_version="550.54.14", cuda_version="12.4")
OLD = replace(INVENTORY, driver_version="530.30.02", cuda_version="12.1")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    with Dockerd() as started:
        directory, base = tmp_path_factory.mktemp("images"), busybox_layer(dockerd.busybox(), APPLETS)
        path = f"PATH=/bin:{dict(e.split('=', 1) for e in CUDA['Env'])['PATH']}"
        env = [path, *(entry for entry in CUDA["Env"] if not entry.startswith("PATH="))]
        started.load(save(directory, "nvidia/cuda:12.4.1-base", [base], {**CUDA, "Env": env}))
        for name in ("plain:1", NOWHERE):
            started.load(save(directory, name, [base], {"Env": ["PATH=/bin"]}))
        yield started
    assert started.processes() == []
    assert started.mounts() == []


@pytest.fixture(scope="module")
def volumes(open_directory: Path) -> Path:
    """Build a store of volumes, which each host has a copy of."""
    driver_volume(open_directory / "volumes", "550.54.14")
    return open_directory / "volumes"


@pytest.fixture
def one(
    open_directory: Path,
    agent: ScriptedAgent,
    engine: Dockerd,
    volumes: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Host]:
    """An executor; a parameter is more of its environment."""
    needs("cgroup1")
    directory = open_directory / f"docker-{time.monotonic_ns()}"
    shutil.copytree(volumes, directory / "volumes", symlinks=True)
    given = {
        "MESOS_GPU_DOCKER_SOCKET": str(engine.socket),
        "MESOS_GPU_VOLUMES": str(directory / "volumes"),
        "MESOS_GPU_ISOLATION": "cgroup1",
        **getattr(request, "param", {}),
    }
    with host(directory, agent, **given) as one:
        write_inventory(directory / "node", NEW)
        yield one
    assert [
        name
        for name in DockerEngine(str(engine.socket)).containers("mesos_gpu.task")
        if one.sandbox.name in name
    ] == []


def run(one: Host, command: str, image: str = "nvidia/cuda:12.4.1-base", **more: object) -> None:
    one.launch(
        command, image=image, container_engine="docker", **{"user": "nobody", "gpus": GPUS[:1], **more}
    )


def test_container_has_its_card_and_the_drivers_volume_and_nothing_else(one: Host) -> None:
    run(
        one,
        "for f in /dev/nvidia*; do cat $f 2>&1; done; echo /usr/local/nvidia/lib64/libcuda.so.5*;"
        " touch /usr/local/nvidia/x;"
        "echo $NVIDIA_VISIBLE_DEVICES; echo $LD_LIBRARY_PATH; id -u; pwd > /mnt/mesos/sandbox/kept; true",
        env={"LD_LIBRARY_PATH": "/opt/own"},
    )
    assert one.end("TASK_FINISHED") == ("Command exited with status 0", Outcome(exit_status=0))
    said = one.stdout().splitlines()
    assert said[:2] == [f"cat: can't open '/dev/{name}': {ALLOWED}" for name in ("nvidia0", "nvidiactl")]
    assert said[2:4] == ["/usr/local/nvidia/lib64/libcuda.so.550.54.14", GPUS[0]]
    assert said[4] == "/opt/own:/usr/local/nvidia/lib:/usr/local/nvidia/lib64", (
        "what the job sets stands first"
    )
    assert said[5] == "65534"
    assert "Read-only file system" in one.stderr()
    assert (one.sandbox / "kept").group() == "nogroup"


def test_a_task_without_gpus_gets_no_card_whatever_the_image_and_the_job_say(one: Host) -> None:
    run(one, "ls /dev; echo $NVIDIA_VISIBLE_DEVICES", gpus=(), env={"NVIDIA_VISIBLE_DEVICES": "all"})
    one.end("TASK_FINISHED")
    assert "nvidia" not in one.stdout()
    assert one.stdout().endswith("void\n")


def test_escapes_are_refused(one: Host) -> None:
    for minor in (0, 1):
        os.mknod(one.sandbox / f"n{minor}", 0o20666, os.makedev(195, minor))
        (one.sandbox / f"n{minor}").chmod(0o666)
    run(
        one,
        "cd /mnt/mesos/sandbox; cat n0; cat n1; mknod /tmp/n c 195 1; mkdir -p /tmp/d; mount -t devtmpfs none /tmp/d;"
        "echo $$ > /sys/fs/cgroup/devices/cgroup.procs; true",
        user="root",
        image="plain:1",
    )
    one.end("TASK_FINISHED")
    said = one.stderr()
    assert f"can't open 'n0': {ALLOWED}" in said or f"can't open 'n0': {DENIED}" in said  # binds may be nodev
    assert f"can't open 'n1': {DENIED}" in said
    assert f"mknod: /tmp/n: {DENIED}" in said
    assert "mount: " in said
    assert "cgroup.procs" in said


def test_a_newer_cuda_than_the_driver_has_is_refused_with_both_versions(one: Host) -> None:
    write_inventory(one.sandbox.parent / "node", OLD)
    run(one, "echo never")
    message, outcome = one.end("TASK_FAILED")
    assert "12.4" in message
    assert "530.30.02" in message
    assert "12.1" in message
    assert outcome == Outcome(min_driver="535", needs="CUDA 12.4 or newer")
    assert one.stdout() == ""


def test_task_on_a_host_without_its_driver_volume_fails_with_the_name_of_the_volume(one: Host) -> None:
    write_inventory(
        one.sandbox.parent / "node", replace(NEW, driver_version="560.35.03", cuda_version="12.6")
    )
    run(one, "echo never")
    message, outcome = one.end("TASK_FAILED")
    assert "nvidia_560.35.03" in message
    assert not outcome.infrastructure, "placement would choose the same host again"


def test_an_image_without_needs_gets_no_volume(one: Host) -> None:
    run(one, "ls /usr/local; echo $LD_LIBRARY_PATH; exit 7", image="plain:1")
    assert one.end("TASK_FAILED")[1] == Outcome(exit_status=7)
    assert one.stdout().split() == []


def test_a_kill_is_sigterm_then_the_grace(one: Host) -> None:
    run(one, "trap 'echo saved; exit 4' TERM; echo ready; while :; do sleep 0.05; done", kill_grace_s=20.0)
    wait_until("it is ready", lambda: "ready" in one.stdout())
    one.kill()
    assert one.end("TASK_KILLED")[1] == Outcome(exit_status=4)
    assert "saved" in one.stdout()


@pytest.mark.parametrize("init", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CASES)
def test_sigterm_lets_programs_save_in_a_container(one: Host, name: str, init: bool) -> None:
    case, began = CASES[name], time.monotonic()
    command = case.command.format("/mnt/mesos/sandbox")
    run(one, command, image="plain:1", kill_grace_s=60.0, docker=DockerOptions(init=init))
    wait_until("it is ready", lambda: "ready\n" in one.stdout())
    one.kill(grace_s=0.5 if case.ignores else None)
    status = case.code if case.code is not None else 143 if init and not case.ignores else 137
    assert one.end("TASK_KILLED")[1] == Outcome(exit_status=status)
    assert one.stdout() == f"ready\n{case.says}"
    assert time.monotonic() - began < 45


def test_image_that_does_not_exist_fails_the_task(one: Host) -> None:
    run(one, "true", image="no-such-registry.invalid/image:1")
    message, _ = one.end("TASK_FAILED")
    assert "no-such-registry.invalid/image:1" in message


def test_an_image_that_is_there_is_fetched_again_only_if_that_is_asked(one: Host) -> None:
    run(one, "true", image=NOWHERE, pull=True)
    message, _ = one.end("TASK_FAILED")
    assert NOWHERE in message


def test_a_host_without_an_engine_says_so_and_keeps_nothing(
    open_directory: Path, agent: ScriptedAgent
) -> None:
    needs("cgroup1")
    directory = open_directory / f"none-{time.monotonic_ns()}"
    directory.mkdir()
    given = {"MESOS_GPU_DOCKER_SOCKET": str(directory / "none.sock"), "MESOS_GPU_ISOLATION": "cgroup1"}
    with host(directory, agent, **given) as one:
        run(one, "echo never", image="plain:1")
        message, outcome = one.end("TASK_FAILED")
    assert "no Docker Engine answers" in message
    assert "\n" not in message
    assert not outcome.infrastructure, "placement would choose the same host again"
    assert not Path("/dev/mesos_gpu", one.sandbox.name).exists()


def test_the_container_of_a_killed_executor_is_removed_by_the_monitor(one: Host, engine: Dockerd) -> None:
    run(one, "echo ready; sleep 600")
    wait_until("it is ready", lambda: "ready" in one.stdout())
    docker = DockerEngine(str(engine.socket))
    name = f"mesos-gpu-{one.sandbox.name}"
    assert name in docker.containers("mesos_gpu.task")
    one.process.kill()
    one.process.wait(60)
    assert name in docker.containers("mesos_gpu.task"), "the engine keeps it"
    reap(one.ledger)
    assert name not in docker.containers("mesos_gpu.task")
    assert one.ledger.holdings() == ()
    assert not Path("/dev/mesos_gpu", one.sandbox.name).exists()


def test_health_of_a_container_is_checked_inside(one: Host) -> None:
    cards = "test -e /dev/nvidia0 && test ! -e /dev/nvidia1"
    inside = f"test $(id -u) = 65534 && {cards} && test ! -e $MESOS_SANDBOX/down || exit 4"
    check = HealthCheck(Protocol.COMMAND, command=inside, interval_s=0, delay_s=0, grace_period_s=0)
    run(one, "sleep 60", checks=encode([check]), kill_grace_s=0)
    one.agent.wait_for(lambda: any(status.get("healthy") for status in one.agent.updates))
    (one.sandbox / "down").touch()
    assert one.end("TASK_KILLED")[0] == "unhealthy: COMMAND check failed 3 times: exit code 4"


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_a_container_reaches_no_control_port(one: Host, engine: Dockerd, user: str) -> None:
    """By its name, by another, and by the one that means this host; what ran before its command is gone."""
    port = one.agent.endpoint.rpartition(":")[2]
    tries = "; ".join(
        f"wget -q -O - http://{ip}:{port}/ 2>&1" for ip in ("127.0.0.1", "127.3.2.1", "0.0.0.0")
    )
    run(one, f"{tries}; cat /proc/1/comm; true", user=user)
    one.end("TASK_FINISHED")
    *denied, first = one.stdout().splitlines()
    assert len(denied) == 3
    assert all("Operation not permitted" in line for line in denied), denied
    assert first == "sh"


@pytest.mark.parametrize(("mode", "end"), [(0o600, "TASK_FAILED"), (0o644, "TASK_FINISHED")])
def test_fetch_for_root_of_an_image_is_not_done_by_root_of_the_host(
    open_directory: Path, agent: ScriptedAgent, engine: Dockerd, mode: int, end: str
) -> None:
    """An operator has allowed for root in images; fetching is done on the host."""
    needs("cgroup1")
    directory = open_directory / f"fetch-{time.monotonic_ns()}"
    directory.mkdir()
    (directory / "file").write_text("of root\n")
    (directory / "file").chmod(mode)
    helpers.write(directory / "libexec", directory)
    program = directory / "libexec" / "mesos-fetcher"
    # By the system's interpreter: a uid without an account cannot read that of root's.
    program.write_text(program.read_text().replace(helpers.python(), "/usr/bin/python3"))
    given = {
        "MESOS_GPU_DOCKER_SOCKET": str(engine.socket),
        "MESOS_GPU_FETCHER": str(program),
        "MESOS_GPU_ALLOW_ROOT": "image",
    }
    with host(directory, agent, **given) as one:
        look = "cd $MESOS_SANDBOX; id -u; cat file; touch file && rm file"
        run(one, look, image="plain:1", user="root", fetch=({"value": f"{directory}/file"},))
        message, _ = one.end(end)
        said = (False, "0\nof root\n") if end == "TASK_FINISHED" else (True, "")
        assert ("could not fetch" in message, one.stdout()) == said


# --- with a share of its card


def test_a_share_sees_its_limits_to_read_and_its_usage_to_write(
    one: Host,
) -> None:
    """The image asks for no driver; a share gets what keeps it to that all the same."""
    directory = one.sandbox.parent
    (next((directory / "volumes" / "builds").iterdir()) / "region").mkdir()
    sharing = tuple(replace(gpu, sharing=Sharing(4000)) for gpu in NEW.gpus)
    write_inventory(directory / "node", replace(NEW, gpus=sharing))
    run(
        one,
        "cd /usr/local/nvidia/region; echo x > limits; echo x > more; test -s limits && echo read;"
        " echo x > usage && echo written; for f in /dev/nvidia?; do cat $f 2>&1; done; echo $LD_LIBRARY_PATH;"
        " env | grep -c CUDA_MPS; sleep 600",
        image="plain:1",
        share=Share(250, 1000, 1000, Method.SHIM_WINDOWS),
        env={"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mine"},
    )
    wait_until("it has looked", lambda: one.stdout().split()[-1:] == ["0"], 60)
    says = one.stdout().splitlines()
    assert says[:2] == ["read", "written"]
    assert says[2] == f"cat: can't open '/dev/nvidia0': {ALLOWED}"
    assert says[3] == "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    assert one.stderr().count("Read-only file system") == 2
    region = region_of(directory / "node", TaskId(one.task))
    assert region.usage_path.read_bytes()[:2] == b"x\n"
    one.kill(grace_s=0.0)
    one.end("TASK_KILLED")
    assert not region.path.exists()
    assert one.ledger.cards() == ()


def test_a_strict_share_takes_no_image_with_a_libcuda_of_its_own(one: Host, engine: Dockerd) -> None:
    directory = one.sandbox.parent
    (next((directory / "volumes" / "builds").iterdir()) / "region").mkdir()
    sharing = tuple(replace(gpu, sharing=Sharing(4000)) for gpu in NEW.gpus)
    write_inventory(directory / "node", replace(NEW, gpus=sharing))
    own = layer({"usr/lib64": None, "usr/lib64/libcuda.so.1": b"x"})
    layers = [busybox_layer(dockerd.busybox(), APPLETS), own]
    (directory / "images").mkdir()
    engine.load(save(directory / "images", "own-cuda:1", layers, {"Env": ["PATH=/bin"]}))
    share = Share(250, 1000, 1000, Method.DMEM_WINDOWS)
    run(one, "echo never", image="own-cuda:1", share=share, strict=True)
    message, outcome = one.end("TASK_FAILED")
    assert "the image has a libcuda of its own, /usr/lib64/libcuda.so.1" in message
    assert outcome == Outcome(), "the job's own"
    assert one.stdout() == ""


# --- limits of its memory and CPUs, which are the engine's


def test_container_is_ended_at_its_memory_limit(one: Host) -> None:
    run(one, "x=0123456789; while :; do x=$x$x; done", image="plain:1", gpus=(), mem_mib=64, cpus=0.5)
    message, outcome = one.end("TASK_FAILED")
    assert message == "out of memory: 64 MiB asked; ask for more with --mem"
    assert outcome == Outcome(exit_status=137)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have executors use an engine that limits no memory, as on a host without the controller; before `one`."""
    code = (
        "from isolator.agent import docker_engine as engine; limits = engine._limits; "
        "engine._limits = lambda wish: {**limits(wish), 'Memory': 0, 'MemorySwap': 0}"
    )
    monkeypatch.setattr("tests.hosts.executor_command", lambda: changed_executor(code))


def test_engine_that_limits_no_memory_gets_no_task(forgetful: None, one: Host) -> None:
    run(one, "echo ran", image="plain:1", gpus=(), mem_mib=64)
    message, outcome = one.end("TASK_FAILED")
    assert (
        "the host cannot run the task: the Docker Engine does not limit the memory of the container"
        in message
    )
    assert "MESOS_GPU_UNLIMITED=memory" in message
    assert outcome == Outcome(infrastructure=True)
    assert one.stdout() == ""


@pytest.mark.parametrize("one", [{"MESOS_GPU_UNLIMITED": "memory"}], indirect=True)
def test_operator_gives_up_the_memory_limit_of_engines(forgetful: None, one: Host) -> None:
    run(one, "echo ran", image="plain:1", gpus=(), mem_mib=64)
    one.end("TASK_FINISHED")
    assert one.stdout() == "ran\n"


@pytest.mark.parametrize("most", [0.5, 1000.0], ids=["less than the host's", "more than the host's"])
def test_engine_limits_cpus_where_a_job_asks_for_it(one: Host, engine: Dockerd, most: float) -> None:
    run(one, "sleep 600", image="plain:1", gpus=(), mem_mib=64, cpus=0.5, cpu_limit=most)
    one.update("TASK_RUNNING")
    said = engine.ask("GET", f"/containers/mesos-gpu-{one.sandbox.name}/json")["HostConfig"]
    assert (said["CpuShares"], said["NanoCpus"], said["PidsLimit"]) == (
        512,
        500_000_000 if most < 1 else 0,
        4096,
    )
    one.kill(grace_s=0)
    one.end("TASK_KILLED")


# --- limits of a share's memory, at its gate

#: Before an executor: a driver that keeps limits, whose calls are in a file each, with what was there at that time.
LIMITS = """
import json, os, time
from pathlib import Path
from isolator.devices import cgroups
from isolator.gpus.ledger import Ledger
from isolator.shares import enforcing
from isolator.shares.driver.limits import CgroupLimits

class Driver:
    def ask(self, what, **given):
        at, pids = Path(given["cgroup"]), cgroups.pids_below(Path(given["cgroup"]))
        node = Path(os.environ["MESOS_GPU_NODE_DIR"])
        held = [trace for each in Ledger(node / "ledger.sqlite").holdings() for trace in each.traces]
        asked = node / "asked"
        (node / "part").write_text(json.dumps({
            "what": what, **given, "traces": [[each.kind, each.what] for each in held],
            "runs": [os.path.basename(os.readlink(f"/proc/{pid}/exe")) for pid in pids],
        }))
        (node / "part").rename(asked)
        if "HANGS" in os.environ:
            time.sleep(600)

enforcing.measures = lambda tenancy: (CgroupLimits(Driver(), cgroups.mounted()["cgroup2"]),)
"""
LIMITED = Share(250, 1000, 3000, Method.DMEM_WINDOWS)


@pytest.fixture
def limiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have executors use that driver; before `one`."""
    monkeypatch.setattr("tests.hosts.executor_command", lambda: changed_executor(LIMITS))


def limited(one: Host, command: str, **more: object) -> Path:
    """Run with limits; where the driver's call will be."""
    node = one.sandbox.parent / "node"
    sharing = tuple(replace(gpu, sharing=Sharing(4000)) for gpu in NEW.gpus)
    write_inventory(node, replace(NEW, gpus=sharing))
    run(one, command, image="plain:1", share=LIMITED, **more)
    return node / "asked"


def test_limits_are_on_its_cgroup_before_the_images_first_instruction(limiting: None, one: Host) -> None:
    asked = limited(one, "echo ran")
    one.end("TASK_FINISHED")
    order = json.loads(asked.read_text())
    assert order["runs"] == ["gate"], "nothing of the image, which then runs"
    assert one.stdout() == "ran\n"
    assert (order["what"], order["soft_mib"], order["hard_mib"]) == ("limit", 0, 1000)
    assert order["uuids"] == list(GPUS[:1])
    assert ["limit", f"{GPUS[0]} {order['cgroup']}"] == order["traces"][0], "its undo is the last of all"
    assert not Path(order["cgroup"]).exists()
    assert "cannot use more memory than its share, even while the rest is free" in one.stderr()


@pytest.mark.parametrize("one", [{"HANGS": "1"}], indirect=True)
def test_an_executor_killed_at_the_gate_leaves_nothing_and_the_image_never_runs(
    limiting: None, one: Host, engine: Dockerd
) -> None:
    asked = limited(one, "echo ran; touch /mnt/mesos/sandbox/ran; sleep 600")
    wait_until("it waits at its gate", asked.exists, 60)
    one.process.kill()
    one.process.wait(60)
    name, cgroup = f"mesos-gpu-{one.sandbox.name}", Path(json.loads(asked.read_text())["cgroup"])
    assert name in DockerEngine(str(engine.socket)).containers("mesos_gpu.task")
    (held,) = one.ledger.holdings()
    assert [trace.kind for trace in held.traces][:2] == ["limit", "container"], "undone last"
    reap(one.ledger)
    assert name not in DockerEngine(str(engine.socket)).containers("mesos_gpu.task")
    assert not cgroup.exists()
    assert one.ledger.holdings() == ()
    assert (one.stdout(), (one.sandbox / "ran").exists()) == ("", False)


@pytest.mark.parametrize("one", [{"MESOS_GPU_CONTROL_PORTS": "off"}], indirect=True)
def test_a_container_without_a_gate_gets_no_share_that_is_limited_there(limiting: None, one: Host) -> None:
    asked = limited(one, "echo never")
    message, outcome = one.end("TASK_FAILED")
    assert "with MESOS_GPU_CONTROL_PORTS=off it has no gate" in message
    assert (outcome.infrastructure, outcome.refused_gpus) == (True, GPUS[:1])
    assert one.stdout() == ""
    assert not asked.exists()


# --- whose its processes are


@pytest.mark.parametrize(
    "one", [{"MESOS_GPU_CONTROL_PORTS": "off"}, {}], indirect=True, ids=["bare", "fenced"]
)
def test_processes_of_a_container_are_its_tasks_for_the_monitor(one: Host, engine: Dockerd) -> None:
    """Where it has no fence, only the engine's cgroup tells."""
    directory = one.sandbox.parent
    (next((directory / "volumes" / "builds").iterdir()) / "region").mkdir()
    inventory = replace(NEW, gpus=tuple(replace(gpu, sharing=Sharing(4000)) for gpu in NEW.gpus))
    write_inventory(directory / "node", inventory)
    run(
        one,
        "echo ready; sleep 600 & wait",
        image="plain:1",
        share=Share(250, 1000, 1000, Method.SHIM_WINDOWS),
    )
    wait_until("it runs", lambda: "ready" in one.stdout(), 60)
    name = f"mesos-gpu-{one.sandbox.name}"
    first = engine.ask("GET", f"/containers/{name}/json")["State"]["Pid"]
    (second,) = wait_until("it has a child", lambda: descendants(first))
    assert strangers(one.ledger, {GPUS[0]: [first, second]}) == {}
    assert str(os.getpid()) in strangers(one.ledger, {GPUS[0]: [first, os.getpid()]})[GPUS[0]]
    watch = Watch(one.ledger, {"MESOS_GPU_VOLUMES": str(directory / "volumes")})
    reading = Reading(
        inventory.gpus[0], pids=(first, second, 1), process_mib=((first, 300), (second, 400), (1, 9))
    )
    (use,) = watch.look([reading])
    assert (use.task_id, use.memory_mib) == (TaskId(one.task), 700)
    env = {"MESOS_GPU_ISOLATION": "cgroup1"}
    assert audit(one.ledger, inventory, env) == []
    os.mknod(f"/proc/{first}/root/dev/nvidia1", 0o20666, os.makedev(195, 1))
    (note,) = audit(one.ledger, inventory, env)
    assert one.task in note
    assert "/dev of the container has the devices" in note
    one.kill(grace_s=0.0)
    one.end("TASK_KILLED")
    assert watch.look([reading]) == ()
