"""Tasks with an image that the executor runs itself: what they see and reach, and what becomes of bad images."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from isolator.confinement.apart_sys import SCOPES_SINCE, landlock_abi
from isolator.node.reaper import reap
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.wire.mesos.checks import encode
from tests.conftest import wait_until
from tests.doubles.images import Link, layer, save
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import GPUS, Host, driver_volume, host
from tests.kernel.conftest import needs
from tests.kernel.images.made import entry, file, tar

pytestmark = pytest.mark.kernel
NOBODY = pwd.getpwuid(65534).pw_name
SANDBOX = "/mnt/mesos/sandbox"
CGROUPS = ("cgroup2",)


def run(one: Host, command: str | None, image: str = "plain:1", **more: Any) -> None:
    one.launch(command, image=image, **{"user": NOBODY, **more})


def said(one: Host, command: str | None, image: str = "plain:1", **more: Any) -> list[str]:
    run(one, command, image, **more)
    one.end("TASK_FINISHED")
    return one.stdout().splitlines()


def of_registry(directory: Path, agent: ScriptedAgent, address: str, **more: str) -> Any:
    needs("cgroup2")
    return host(directory, agent, MESOS_GPU_ISOLATION="cgroup2", MESOS_GPU_IMAGE_REGISTRY=address, **more)


# --- what it gets


def test_image_has_its_own_files_its_card_and_the_sandbox(one: Host) -> None:
    look = "echo *; pwd; id -u; echo kept > kept; echo $GREETING $HOME $MESOS_SANDBOX; ls /dev/nvidia*"
    lines = said(one, f"{look}; cat /dev/nvidia0 2>&1; touch /tmp/x /new 2>&1; true", gpus=GPUS[:1])
    assert lines == [
        "executor.log stderr stdout", SANDBOX, "65534", f"hello {SANDBOX} {SANDBOX}", "/dev/nvidia0", "/dev/nvidiactl",
        "cat: can't open '/dev/nvidia0': No such device or address",
        "touch: /tmp/x: Permission denied", "touch: /new: Permission denied",
    ]  # fmt: skip
    assert (one.sandbox / "kept").read_text() == "kept\n"


@pytest.mark.long
def test_image_is_run_by_mesos_engine_or_own_without_a_cgroup_of_the_agent(one: Host) -> None:
    assert said(one, "cat /etc/passwd", container_engine="own")[0].startswith("root:x:0:0")


@pytest.mark.long
@pytest.mark.parametrize(
    ("asked", "out"),
    [
        ({"command": None}, "entry cmd"),
        ({"command": None, "args": ("more", "words")}, "entry more words"),
        ({"command": None, "argv": ("/bin/echo", "argv")}, "argv"),
        ({"command": "echo command"}, "command"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_commands_of_the_image_and_of_the_job(one: Host, asked: dict[str, Any], out: str) -> None:
    assert said(one, **asked) == [out]


@pytest.mark.long
def test_image_begins_in_its_directory_which_is_made(one: Host) -> None:
    assert said(one, "pwd; ls /opt", "placed:1") == ["/opt/new", "new", "x"]


@pytest.mark.long
def test_image_that_wants_the_driver_gets_its_volume(one: Host, directory: Path) -> None:
    driver_volume(directory / "volumes", "535.0")
    from dataclasses import replace

    from isolator.devices.facts import write_inventory
    from tests.hosts import INVENTORY

    write_inventory(directory / "node", replace(INVENTORY, driver_version="535.0", cuda_version="12.2"))
    lines = said(
        one,
        "echo /usr/local/nvidia/lib64/libcuda.so.5*; touch /usr/local/nvidia/x 2>&1; true",
        "driver:1",
        gpus=GPUS[:1],
    )
    assert lines == [
        "/usr/local/nvidia/lib64/libcuda.so.535.0",
        "touch: /usr/local/nvidia/x: Read-only file system",
    ]


@pytest.mark.long
@pytest.mark.parametrize("one", [{"MESOS_GPU_ALLOW_ROOT": "image"}], indirect=True)
@pytest.mark.parametrize(
    ("number", "ids"), [(0, "4321 4322"), (1, "4321 4323"), (2, "77 0"), (3, "77 88"), (4, "0 0")]
)
def test_image_that_may_run_as_root_runs_as_its_own_user(one: Host, number: int, ids: str) -> None:
    assert said(one, "echo $(id -u) $(id -g)", f"user:{number}", user=None) == [ids]


@pytest.mark.long
@pytest.mark.parametrize("one", [{"MESOS_GPU_ALLOW_ROOT": "image"}], indirect=True)
def test_image_whose_user_it_does_not_know_is_refused(one: Host) -> None:
    run(one, "true", "user:5", user=None)
    message, outcome = one.end("TASK_FAILED")
    assert "names the user 'strange-one', which is not in its /etc/passwd" in message
    assert not outcome.infrastructure


@pytest.mark.long
def test_job_decides_whom_its_image_runs_as(one: Host) -> None:
    assert said(one, "id -u", "user:0") == ["65534"]


@pytest.mark.long
@pytest.mark.parametrize("one", [{"MESOS_GPU_ALLOW_ROOT": "nowhere"}], indirect=True)
def test_image_does_not_run_as_root_where_the_host_does_not_allow_it(one: Host) -> None:
    run(one, "true", "user:4", user=None)
    assert "MESOS_GPU_ALLOW_ROOT" in one.end("TASK_FAILED")[0]


@pytest.mark.long
def test_commands_beside_it_run_inside(one: Host) -> None:
    """A COMMAND check, as `exec`, is forked from the inner process."""
    check = HealthCheck(
        Protocol.COMMAND, command=f"test -e /bin/busybox && pwd > {SANDBOX}/checked", interval_s=0, timeout_s=30,
        grace_period_s=0, delay_s=0,
    )  # fmt: skip
    run(
        one,
        f"until test -s {SANDBOX}/checked; do sleep 0.1; done; cat {SANDBOX}/checked",
        checks=encode((check,)),
    )
    one.end("TASK_FINISHED")
    assert one.stdout() == f"{SANDBOX}\n"


@pytest.mark.long
def test_volumes_are_where_the_job_wants_them(directory: Path, images: Path, agent: ScriptedAgent) -> None:
    needs("cgroup2")
    from mesos_gpu.model.jobs.mount import Mount

    data = directory / "data"
    for name, mode in (("models", 0o755), ("out", 0o777)):
        (data / name).mkdir(parents=True)
        (data / name).chmod(mode)
    (data / "models/weights").write_text("7\n")
    mounts = (
        Mount(str(data / "models"), "/deep/in/models", True),
        Mount(str(data / "out"), "out", False),
        Mount(str(data / "models/weights"), "/etc/weights", True),
    )
    given = {"MESOS_GPU_IMAGE_REGISTRY": str(images), "MESOS_GPU_VOLUME_ROOTS": str(data)}
    with host(directory, agent, MESOS_GPU_ISOLATION="cgroup2", **given) as one:
        lines = said(
            one,
            "cat /deep/in/models/weights /etc/weights; echo x > out/new; touch /deep/in/models/x 2>&1; true",
            mounts=mounts,
        )
    assert lines == ["7", "7", "touch: /deep/in/models/x: Read-only file system"]
    assert (data / "out/new").read_text() == "x\n"


# --- what it does not reach


ESCAPES = {
    "mount": "mount -t tmpfs x /tmp",
    "unmount": "umount /proc/sys",
    "node": "mknod /dev/nvidia1 c 195 1",
    "card": "cat /dev/nvidia1",
    "kernel": "echo x > /proc/sys/kernel/core_pattern",
    "sysrq": "echo x > /proc/sysrq-trigger",
    "sys": "echo 1 > /sys/kernel/profiling",
    "cgroup": "mkdir /sys/fs/cgroup/x || mkdir /sys/fs/cgroup/unified/x",
    "executor": "kill -9 $PARENT",
    "other": "kill -9 $OTHER",
    "root of another": "ls /proc/$OTHER/root/",
    "root of the host": "ls /proc/1/root/",
    "environment": "cat /proc/$OTHER/environ",
}


@pytest.mark.parametrize("one", [{"MESOS_GPU_ALLOW_ROOT": "image"}], indirect=True)
@pytest.mark.parametrize("user", [NOBODY, pytest.param("root", marks=pytest.mark.long)])
def test_image_reaches_nothing_of_its_host(one: Host, user: str, directory: Path) -> None:
    if user == "root" and landlock_abi() < SCOPES_SINCE:
        pytest.skip("an image runs as root from Linux 6.12 on")
    with subprocess.Popen(["sleep", "600"], user=user, env={"SECRET": "1"}) as other:
        try:
            tries = "; ".join(f"({command}) 2>/dev/null && echo {name}" for name, command in ESCAPES.items())
            env = {"OTHER": str(other.pid), "PARENT": str(one.process.pid)}
            look = "ls /proc | grep -c '^[0-9]'; grep -l SECRET /proc/[0-9]*/environ; readlink /proc/1/exe"
            lines = said(one, f"{tries}; {look}; true", user=user, env=env)
            assert other.poll() is None
        finally:
            other.kill()
    assert [line for line in lines if line in ESCAPES] == []
    assert int(lines[0]) <= 6  # a shell and its pipe
    assert "SECRET" not in one.stdout()
    text = one.stdout()
    assert str(directory) not in text


@pytest.mark.parametrize("one", [{"MESOS_GPU_ALLOW_ROOT": "image"}], indirect=True)
def test_root_of_an_image_sees_no_cgroup_of_version_2(one: Host) -> None:
    """By a descriptor of one, root starts processes in it (CLONE_INTO_CGROUP)."""
    if landlock_abi() < SCOPES_SINCE:
        pytest.skip("an image runs as root from Linux 6.12 on")
    look = "find / -xdev -name cgroup.subtree_control; find /sys/fs /run -name cgroup.subtree_control; true"
    assert said(one, look, user="root") == []


@pytest.mark.long
def test_files_of_the_host_are_not_in_its_mounts(one: Host, directory: Path) -> None:
    """Nothing of the old root is left in the mount namespace."""
    lines = said(one, "cut -d' ' -f4,5 /proc/self/mountinfo")
    points = [line.split()[1] for line in lines]
    assert points[0] == "/"
    assert all(re.match(r"/($|proc|sys|dev|mnt/mesos/sandbox)", point) for point in points), points
    sources = [line.split()[0] for line in lines if line.split()[1] == SANDBOX]
    assert sources == [str(one.sandbox)] or sources[0].endswith(one.sandbox.name)


# --- images that are hostile, or not there


LINKS = {
    "links to the host": {name: Link("/etc") for name in ("proc", "sys", "dev", "mnt")},
    "links above": {name: Link("../../../../../../..") for name in ("proc", "sys", "dev", "mnt", "etc")},
    "a link to a file of the host": {
        "etc": None,
        "etc/resolv.conf": Link("/etc/passwd"),
        "etc/hosts": Link("/nowhere"),
    },
    "files": dict.fromkeys(("proc", "sys", "dev"), b"file"),
}


#: `make test` runs the first alone.
EACH_LINK = [
    pytest.param(files, marks=[pytest.mark.long] if number else [], id=name)
    for number, (name, files) in enumerate(LINKS.items())
]


@pytest.mark.parametrize("files", EACH_LINK)
def test_mount_points_that_are_links_stay_in_the_image(
    directory: Path, base: bytes, agent: ScriptedAgent, files: dict[str, Any]
) -> None:
    needs("cgroup2")
    busybox = {
        "bin": None,
        "bin/busybox": Path(str(shutil.which("busybox"))).read_bytes(),
        "bin/sh": Link("busybox"),
    }
    save(directory / "images", "hostile:1", [layer({**busybox, **files})], {"Env": ["PATH=/bin"]})
    before = {name: os.lstat(f"/{name}").st_mtime_ns for name in ("", "etc", "mnt", "usr", "root")}
    with host(
        directory, agent, MESOS_GPU_ISOLATION="cgroup2", MESOS_GPU_IMAGE_REGISTRY=str(directory / "images")
    ) as one:
        run(one, "busybox echo alive; busybox readlink /proc/self/exe", "hostile:1")
        one.update("TASK_FINISHED")
        assert one.stdout() == "alive\n/bin/busybox\n"
    assert before == {name: os.lstat(f"/{name}").st_mtime_ns for name in before}


@pytest.mark.long
@pytest.mark.parametrize(("count", "state"), [(200, "TASK_FINISHED"), (201, "TASK_FAILED")])
def test_image_has_a_bounded_number_of_layers(
    directory: Path, base: bytes, agent: ScriptedAgent, count: int, state: str
) -> None:
    needs("cgroup2")
    layers = [base, *(tar(file(f"layers/{number}", b"1")) for number in range(1, count))]
    save(directory / "images", "many:1", layers, {"Env": ["PATH=/bin"]})
    with host(
        directory, agent, MESOS_GPU_ISOLATION="cgroup2", MESOS_GPU_IMAGE_REGISTRY=str(directory / "images")
    ) as one:
        run(one, "ls /layers | wc -l", "many:1")
        message, outcome = one.end(state)
        assert one.stdout() == ("199\n" if count == 200 else "")
        assert ("has 201 layers" in message) == (count == 201)
        assert not outcome.infrastructure


@pytest.mark.parametrize(
    ("layers", "env", "why"),
    [
        ([], ["PATH=/bin"], "bad:1 has 0 layers, but must have 1 to 200"),
        pytest.param(
            [layer({})], 5, "the configuration of bad:1 is not that of an image", marks=pytest.mark.long
        ),
    ],
)
def test_image_that_is_none_is_the_jobs_fault(
    directory: Path, agent: ScriptedAgent, layers: list[bytes], env: Any, why: str
) -> None:
    needs("cgroup2")
    save(directory / "images", "bad:1", layers, {"Env": env})
    with host(
        directory, agent, MESOS_GPU_ISOLATION="cgroup2", MESOS_GPU_IMAGE_REGISTRY=str(directory / "images")
    ) as one:
        run(one, "true", "bad:1")
        message, outcome = one.end("TASK_FAILED")
    assert why in message
    assert not outcome.infrastructure


@pytest.mark.long
def test_mount_point_that_cannot_be_is_the_images_fault(
    directory: Path, base: bytes, agent: ScriptedAgent
) -> None:
    needs("cgroup2")
    loop = layer({"mnt2": None})
    save(
        directory / "images",
        "loop:1",
        [base, loop, tar(entry("mnt", tarfile.SYMTYPE, linkname="mnt"))],
        {"Env": ["PATH=/bin"]},
    )
    with host(
        directory, agent, MESOS_GPU_ISOLATION="cgroup2", MESOS_GPU_IMAGE_REGISTRY=str(directory / "images")
    ) as one:
        run(one, "true", "loop:1")
        message, outcome = one.end("TASK_FAILED")
    assert "loop:1 has files in the way of what its task needs" in message
    assert SANDBOX in message
    assert not outcome.infrastructure


@pytest.mark.long
def test_command_that_is_not_in_the_image_has_the_status_of_a_shell(one: Host) -> None:
    run(one, None, argv=("nothing-of-that-name",))
    message, outcome = one.end("TASK_FAILED")
    assert "cannot start 'nothing-of-that-name': No such file or directory" in message
    assert outcome.exit_status == 127


@pytest.mark.long
def test_image_that_is_not_there_names_the_remedy(one: Host) -> None:
    run(one, "true", "absent:1")
    message, outcome = one.end("TASK_FAILED")
    assert "there is no image absent:1" in message
    assert "docker save -o" in message
    assert not outcome.infrastructure


# --- its end


@pytest.mark.long
def test_task_is_ended_with_all_that_it_started(one: Host) -> None:
    run(one, "trap 'echo term; exit 7' TERM; sleep 600 & echo up; wait")
    wait_until("the trap", lambda: one.stdout() == "up\n")
    one.kill(grace_s=5)
    one.end("TASK_KILLED")
    assert one.stdout() == "up\nterm\n"


def test_root_that_a_killed_executor_leaves_is_removed(
    directory: Path, images: Path, agent: ScriptedAgent
) -> None:
    needs("cgroup2")
    with host(directory, agent, MESOS_GPU_ISOLATION="cgroup2", MESOS_GPU_IMAGE_REGISTRY=str(images)) as one:
        run(one, "touch /tmp/written; echo up; sleep 600", user="root")
        wait_until("its start", lambda: one.stdout() == "up\n")
        roots = directory / "node/images/roots"
        assert [path.name for path in roots.glob("*/upper/tmp/*")] == ["written"]
        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait()
        reap(one.ledger)
        wait_until("the image's root to go", lambda: list(roots.iterdir()) == [])


@pytest.mark.long
def test_start_is_given_up_while_layers_are_fetched(
    directory: Path, base: bytes, agent: ScriptedAgent
) -> None:
    """The registry answers with a layer that never ends."""
    import http.server
    import threading

    from isolator.images.registry import platform

    asked = threading.Event()
    go = threading.Event()
    config = json.dumps(
        {"os": "linux", "architecture": platform()[1], "config": {"Env": ["PATH=/bin"]}}
    ).encode()
    import hashlib

    def digest(data: bytes) -> str:
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    manifest = json.dumps({
        "schemaVersion": 2,
        "config": {"digest": digest(config), "size": len(config)},
        "layers": [{"digest": digest(base), "size": len(base)}],
    }).encode()  # fmt: skip

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = manifest if "manifests" in self.path else config if digest(config) in self.path else base
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if body is base:
                self.wfile.write(body[:5000])
                self.wfile.flush()
                asked.set()
                while not go.wait(0.05):
                    self.wfile.write(body[5000:5001])
                return
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with of_registry(directory, agent, f"http://127.0.0.1:{server.server_port}") as one:
                run(one, "true", "slow:1")
                asked.wait(60)
                one.kill(grace_s=1)
                one.end("TASK_KILLED")
        finally:
            go.set()
            server.shutdown()
    assert {path.name for path in (directory / "node/images").iterdir()} <= {"roots"}
