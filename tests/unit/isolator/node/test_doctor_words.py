"""The whole of what each check of the doctor says, on hosts of a few files."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolator.confinement import fence
from isolator.gpus.ledger import Ledger, Owner, Trace
from isolator.gpus.share_claims import CLOSED, CardTrace, Room, ShareClaim
from isolator.node import doctor, mesos_access
from isolator.node.findings import Finding, Host, Level
from isolator.shares.abilities import words_of
from isolator.shares.shim.region import regions
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.share import Method, Share
from volumes.store import Store

DEVICES = "Character devices:\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n"
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n"


#: A word for any caller, in texts of the product.


class Place:
    """A host that has the files that a test gives it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env: dict[str, str] = {}
        self.gpus: tuple[Gpu, ...] = (Gpu(GpuId("GPU-1"), "T4", 1, 1, "", health=Health.OK),)
        self.source = "nvml"

    def file(self, name: str, text: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def node(self, name: str, major: int, minor: int) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(major, minor))
        return path

    @property
    def host(self) -> Host:
        return Host(self.root / "node", Inventory(self.gpus, self.source), self.env, self.root)

    @property
    def here(self) -> Host:
        """This machine, as far as a check tries its kernel."""
        return replace(self.host, root=Path("/"))

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root / "node/ledger.sqlite")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said(findings: Iterable[Finding]) -> list[str]:
    return [f"{each.level.value} {each.check}: {each.text}" for each in findings]


@pytest.mark.parametrize(
    ("version", "devices", "texts"),
    [
        (VERSION, DEVICES, ["OK driver: version 535.183.01", "FAIL nvml: NVML finds no GPU, the driver has 0"]),
        (VERSION, "", ["OK driver: version 535.183.01", "FAIL nvml: NVML finds no GPU, the driver has 0"]),
        ("", DEVICES, ["WARN driver: the driver has device numbers, but no /proc/driver/nvidia/version",
                       "FAIL nvml: NVML finds no GPU, the driver has 0"]),
        ("", "", ["WARN driver: no NVIDIA driver is loaded: right for a host without GPUs"]),
    ],
)  # fmt: skip
def test_doctor_tells_a_driver_by_its_version_and_its_numbers(
    place: Place, version: str, devices: str, texts: list[str]
) -> None:
    place.file("proc/driver/nvidia/version", version)
    place.file("proc/devices", devices)
    place.gpus = ()
    assert said(doctor.driver(place.host)) == texts
    assert said(doctor.driver(replace(place.host, inventory=None))) == texts[:1]


@pytest.mark.parametrize(
    ("cards", "text"),
    [
        (1, "OK nvml: 2 GPUs, all healthy"),
        (2, "OK nvml: 2 GPUs, all healthy"),
        (3, "WARN nvml: NVML sees 2 of 3 cards"),
    ],
)
def test_doctor_counts_the_cards_of_the_driver(place: Place, cards: int, text: str) -> None:
    place.file("proc/driver/nvidia/version", VERSION)
    place.gpus = (place.gpus[0], replace(place.gpus[0], id=GpuId("GPU-2"), minor=2))
    for number in range(cards):
        place.file(f"proc/driver/nvidia/gpus/{number}/information")
    assert said(doctor.driver(place.host))[1:] == [text]


@pytest.mark.parametrize(
    ("cache", "text"),
    [
        ("glibc\0libcuda.so.1\0/usr/lib/libcuda.so.1\0", "OK libraries: libcuda.so.1 is in the linker's cache"),
        ("glibc\0libcuda.so.12\0", "WARN libraries: libcuda.so.1 is not in the linker's cache: CUDA programs without "
                                   "an image will not start"),
    ],
)  # fmt: skip
def test_doctor_looks_for_the_whole_name_of_a_library(place: Place, cache: str, text: str) -> None:
    place.file("proc/driver/nvidia/version", VERSION)
    place.file("etc/ld.so.cache", cache)
    volume = Store(Path("/var/lib/mesos/volumes")).path_of("535.183.01")
    missing = f"WARN volume: {volume} does not exist: images that need the driver cannot run"
    assert said(doctor.libraries(place.host)) == [text, missing]


def test_doctor_names_each_node_that_is_wrong_or_missing(place: Place) -> None:
    place.file("proc/devices", DEVICES)
    assert said(doctor.devices(place.host)) == [
        "WARN devices: missing: /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia-uvm-tools, /dev/nvidia1 (tasks get "
        "nodes of their own)"
    ]
    place.node("dev/nvidiactl", 195, 255)
    place.node("dev/nvidia-uvm", 510, 7)
    place.file("dev/nvidia1")
    assert said(doctor.devices(place.host)) == [
        "FAIL devices: /dev/nvidia-uvm has numbers 510:7, the driver's are 510:0",
        "FAIL devices: /dev/nvidia1 is not a character device",
        "WARN devices: missing: /dev/nvidia-uvm-tools (tasks get nodes of their own)",
    ]
    place.source = "simulated"
    assert said(doctor.devices(place.host)) == []
    place.source = "nvml"
    place.file("proc/devices", "")
    assert said(doctor.devices(place.host)) == []


@pytest.mark.parametrize("folder", ["usr/bin", "bin", "usr/sbin"])
def test_doctor_looks_for_the_drivers_tool_where_it_may_be(place: Place, folder: str) -> None:
    place.file("proc/devices", "Character devices:\n195 nvidia\n")
    text = "devices: the kernel module nvidia-uvm is not loaded"
    assert said(doctor.devices(place.host))[0] == f"FAIL {text}"
    place.file(f"{folder}/nvidia-modprobe")
    assert said(doctor.devices(place.host))[0] == f"WARN {text}"


CAPABILITIES = (1, 5, 6, 7, 12, 21, 27, 39)


@pytest.mark.parametrize("lacking", [None, *CAPABILITIES])
@pytest.mark.parametrize(("wish", "mounts"), [("cgroup2", "1"), ("", "2"), ("", "1"), ("cgroup1", "1")])
def test_doctor_wants_each_capability_that_the_isolation_needs(
    place: Place, lacking: int | None, wish: str, mounts: str
) -> None:
    kind = "cgroup cgroup rw,devices" if mounts == "1" else "cgroup2 cgroup2 rw"
    place.file("proc/self/mountinfo", f"30 20 0:1 / /sys/fs/cgroup rw - {kind}\n")
    place.env["MESOS_GPU_ISOLATION"] = wish
    effective = sum(1 << bit for bit in CAPABILITIES if bit != lacking)
    place.file("proc/self/status", f"Name:\ta\tb\nUid:\t0\t1\t2\t3\nCapEff:\t{effective:016x}\n\n")
    names = dict(zip(CAPABILITIES, doctor._CAPABILITIES, strict=True))
    only_v2 = mounts == "1" and wish != "cgroup2"
    wanted = [name for bit, name in names.items() if not only_v2 or bit not in (12, 39)]
    if lacking is None or (only_v2 and lacking in (12, 39)):
        assert said(doctor.privileges(place.host)) == [f"OK privileges: root with {', '.join(wanted)}"]
    else:
        text = f"FAIL privileges: user id 0, without {names[lacking]}"
        assert said(doctor.privileges(place.host)) == [text]


def test_doctor_wants_root(place: Place) -> None:
    place.file("proc/self/mountinfo", "")
    place.file("proc/self/status", "Uid:\t1000\t0\t0\t0\nCapEff:\t000001ffffffffff\n")
    assert said(doctor.privileges(place.host)) == ["FAIL privileges: user id 1000"]
    place.file("proc/self/status", "")
    assert said(doctor.privileges(place.host))[0].startswith("FAIL privileges: user id ?, without CAP_DAC")


@pytest.mark.parametrize("count", [0, 1, 5, 6, 8])
def test_doctor_shows_as_many_weak_paths_as_a_person_reads(
    place: Place, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(doctor, "places", lambda: ())
    monkeypatch.setattr(doctor, "weak", lambda *_, **__: [f"path {number}" for number in range(count)])
    texts = [f"FAIL own code: tasks may run code as root: path {number}" for number in range(min(count, 5))]
    more = [f"FAIL own code: {count - 5} more paths can be written by others"] if count > 5 else []
    well = [] if count else ["OK own code: only root can write what executors import"]
    assert said(doctor.own_code(place.here)) == [*texts, *more, *well]
    assert said(doctor.own_code(place.host)) == []


def test_doctor_counts_whole_cards_and_shares_apart(place: Place) -> None:
    me = Owner.of(os.getpid())
    assert said(doctor.ledger(place.host)) == [f"OK ledger: none yet in {place.root}/node"]
    place.ledger.claim("a.1", [GpuId("GPU-1"), GpuId("GPU-2")], me)
    assert said(doctor.ledger(place.host)) == ["OK ledger: intact: 1 tasks hold 2 GPUs"]
    share = ShareClaim(Share(1, 1, 1, Method.TURNS), {GpuId("GPU-3"): Room(9)})
    place.ledger.claim("b.1", [GpuId("GPU-3")], me, share=share)
    place.ledger.note(CardTrace(GpuId("GPU-3"), "windows", "it"))
    place.ledger.note(CardTrace(GpuId("GPU-3"), CLOSED, "it hangs"))
    assert said(doctor.ledger(place.host)) == [
        "OK ledger: intact: 2 tasks hold 2 GPUs, and 1 shares of GPUs",
        "WARN ledger: GPU-3 takes no more shares: it hangs",
    ]


class Engine:
    """A Docker Engine of three containers."""

    def __init__(self, _socket: str) -> None:
        pass

    def containers(self, _label: str) -> dict[str, str]:
        return {"b": "", "c": "", "a": ""}

    def facts(self) -> Any:
        return type("Facts", (), {"version": "27.1", "cgroup_driver": "systemd"})


def test_doctor_names_containers_and_dead_tasks_that_are_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "DockerEngine", Engine)
    place.file("proc/self/mountinfo", "")
    assert said(doctor.leftovers(place.host)) == ["OK leftovers: no remains of dead tasks"]
    assert said(doctor.docker(place.host)) == [
        "OK docker: no Docker Engine: jobs that ask for it do not run on this host"
    ]
    place.file("run/engine")
    place.env["MESOS_GPU_DOCKER_SOCKET"] = "/run/engine"
    me, node = Owner.of(os.getpid()), f"{place.root}/node"
    place.ledger.claim("t.1", [], me, traces=[Trace("docker", "/s a"), Trace("other", "/s b")])
    place.ledger.claim("t.2", [], replace(me, boot_id="another"))
    assert said(doctor.leftovers(place.host)) == [
        "WARN leftovers: the executor of t.2 is dead, but the task still holds no GPU",
        f"WARN leftovers: the Docker container b belongs to no task recorded in {node}",
        f"WARN leftovers: the Docker container c belongs to no task recorded in {node}",
    ]
    assert said(doctor.docker(place.host)) == ["OK docker: Docker Engine 27.1, systemd cgroups"]


def test_doctor_names_paths_that_are_left_in_order(place: Place) -> None:
    mount = "30 20 0:1 / /cg/{0} rw - {0} {0} rw,devices\n"
    place.file("proc/self/mountinfo", mount.format("cgroup2") + mount.format("cgroup"))
    paths = [f"/dev/mesos_gpu/{n}" for n in "ab"] + [
        f"/cg/{v}/mesos_gpu/{n}" for v in ("cgroup", "cgroup2") for n in "abc"
    ]
    for path in paths:
        (place.root / path.lstrip("/")).mkdir(parents=True)
    place.file("dev/mesos_gpu/file")
    left = [f"{path} belongs to no task recorded in {place.root}/node" for path in paths]
    kept = regions(place.root / "node")
    for name in "zy":
        place.file(str((kept / name).relative_to(place.root)))
    files = [f"{kept / name} belongs to no task recorded in {place.root}/node" for name in "yz"]
    remains = list(doctor.leftovers(place.host))
    assert [each.text for each in remains] == left + files
    assert [each.remedy.split()[0] for each in remains] == ["rm"] * 2 + ["end"] * 6 + ["rm"] * 2


def test_doctor_tells_who_has_a_card_open(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the device's number, whatever its path is: not the control devices, nor others with that minor."""
    place.file("proc/devices", DEVICES)
    place.gpus = (place.gpus[0], replace(place.gpus[0], id=GpuId("GPU-0"), minor=0))
    card = place.node("dev/nvidia1", 195, 1)
    other = place.node("else", 195, 0)
    for minor in 254, 255, 9:
        place.node(f"dev/{minor}", 195, minor)
    null = place.node("dev/1", 1, 1)
    block = place.root / "dev/block"
    os.mknod(block, stat.S_IFBLK | 0o600, os.makedev(195, 1))

    def opened(pid: int, *targets: Path) -> None:
        for number, target in enumerate(targets):
            link = place.root / f"proc/{pid}/fd/{number}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)

    controls = [place.root / "dev" / str(minor) for minor in (254, 255, 9)]
    opened(4000001, null, block, *controls, place.root / "gone")
    assert said(doctor.gpu_users(place.host)) == [
        "OK gpu users: 0 GPUs in use, only by tasks of the platform"
    ]
    opened(4000002, place.root / "gone", card, card)
    opened(4000003, card, other)
    opened(os.getpid(), card)
    assert said(doctor.gpu_users(place.host)) == [
        "WARN gpu users: GPU-0: pids 4000003",
        "WARN gpu users: GPU-1: pids 4000002, 4000003",
    ]
    place.source = "simulated"
    assert said(doctor.gpu_users(place.host)) == []
    place.source = "nvml"
    place.file("proc/devices", "")
    assert said(doctor.gpu_users(place.host)) == []


@pytest.mark.parametrize(
    ("env", "port", "more"),
    [
        ({}, 5051, ""),
        ({"MESOS_GPU_AGENT": "10.0.0.1:77"}, 77, ""),
        ({"MESOS_GPU_CONTROL_PORTS": "7001,7002"}, 5051, " and 2 more"),
    ],
)
def test_doctor_tries_the_port_of_this_hosts_agent(
    place: Place, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], port: int, more: str
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(doctor, "_agent_flags", lambda _host: None)
    monkeypatch.setattr(fence, "trial", lambda _name, port, _grant: tried.append(port))
    place.env |= env
    text = f"OK ports: tasks cannot reach agents, master, scheduler{more}: a rule was made, tried and removed"
    assert said(doctor.ports(place.here)) == [text]
    assert tried == [port]
    assert said(doctor.ports(place.host)) == []


@pytest.mark.parametrize("error", [Unavailable("why", remedy="none"), PermissionError(1, "why")])
def test_doctor_says_why_a_port_cannot_be_denied(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(doctor, "_agent_flags", lambda _host: None)
    monkeypatch.setattr(fence, "trial", refused)
    why = "why" if isinstance(error, Unavailable) else "[Errno 1] why"
    text = f"FAIL ports: no task can start, as port rules that keep it from commanding the agent fail: {why}"
    assert said(doctor.ports(place.here)) == [text]


@pytest.mark.parametrize(
    ("flags", "level", "whose"),
    [
        (None, "WARN", "runs commands as root for any caller"),
        ({}, "FAIL", "runs commands as root for any caller"),
        ({"authenticate_http_readwrite": "false"}, "FAIL", "runs commands as root for any caller"),
        ({"authenticate_http_readwrite": "true"}, "WARN", "asks for credentials"),
    ],
)
def test_doctor_says_what_an_agent_does_without_rules(
    place: Place, monkeypatch: pytest.MonkeyPatch, flags: dict[str, str] | None, level: str, whose: str
) -> None:
    monkeypatch.setattr(doctor, "_agent_flags", lambda _host: flags)
    place.env["MESOS_GPU_CONTROL_PORTS"] = "off"
    text = f"port rules are off, so tasks reach the ports that command the cluster; its agent {whose}"
    assert said(doctor.ports(place.host)) == [f"{level} ports: {text}"]


@pytest.mark.parametrize("stderr", ["Traceback\nwhy\n", "why", "\n"])
def test_doctor_says_why_no_namespace_can_be_made(
    place: Place, monkeypatch: pytest.MonkeyPatch, stderr: str
) -> None:
    code = f"import sys; sys.stderr.write({stderr!r}); raise SystemExit(1)"
    monkeypatch.setattr(doctor, "statement", lambda _code: ["python3", "-c", code])
    why = "why" if "why" in stderr else "the trial ended with status 1"
    text = f"FAIL namespaces: no mount namespace can be made: {why}"
    assert said(doctor.namespaces(place.here)) == [text]
    monkeypatch.setattr(doctor, "statement", lambda _code: ["true"])
    assert said(doctor.namespaces(place.here)) == ["OK namespaces: a mount namespace can be made"]
    assert said(doctor.namespaces(place.host)) == []


FLAGS = {
    "isolation": "cgroups/devices,cgroups/pids,filesystem/linux,docker/runtime,namespaces/ipc",
    "image_providers": "docker",
    "resources": "gpus(gpu):4",
}


def test_doctor_asks_the_agent_that_is_named_or_the_usual_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Mapping[str, str]]] = []

    def flags_of(endpoint: str, *, authorization: Mapping[str, str], tls: object) -> dict[str, str]:
        asked.append((endpoint, authorization))
        if endpoint.endswith(":1"):
            raise Unavailable("the agent does not answer", remedy="start it")
        return FLAGS

    monkeypatch.setattr(doctor, "flags_of", flags_of)
    assert said(doctor.agent(place.host)) == ["OK agent: 127.0.0.1:5051: flags are right"]
    place.file("etc/names", '{"principal": "doctor", "secret": "s"}').chmod(0o600)
    place.env |= {"MESOS_GPU_AGENT": "h:7", "MESOS_GPU_AGENT_CREDENTIALS": "/etc/names"}
    assert said(doctor.agent(place.host)) == ["OK agent: h:7: flags are right"]
    assert [endpoint for endpoint, _ in asked] == ["127.0.0.1:5051", "h:7"]
    assert [bool(authorization.get("Authorization")) for _, authorization in asked] == [False, True]
    place.env["MESOS_GPU_AGENT"] = "h:1"
    with pytest.raises(Unavailable):
        list(doctor.agent(place.host))
    monkeypatch.setattr(doctor, "AGENT", "127.0.0.1:1")
    del place.env["MESOS_GPU_AGENT"]
    assert said(doctor.agent(place.host)) == [
        "OK agent: no Mesos agent answers at 127.0.0.1:1; MESOS_GPU_AGENT=HOST:PORT names another"
    ]


def test_doctor_says_what_is_open_of_an_agent(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Callable[[], list[str]]] = [lambda: ["/state"]]
    flags: list[Mapping[str, str] | None] = [None]
    monkeypatch.setattr(mesos_access.Daemon, "open_to_all", lambda _self: answers[0]())
    monkeypatch.setattr(doctor, "_agent_flags", lambda _host: flags[0])
    caller = "anyone who reaches it on every address of its host"
    open_to_all = f"WARN names: 127.0.0.1:5051 answers /state to {caller}, without credentials"
    executors = "WARN names: 127.0.0.1:5051: anyone who reaches it may send updates in the name of executors"
    lists = (
        "WARN names: 127.0.0.1:5051: its access control lists are not set: every principal may do everything"
    )
    assert said(doctor.names(place.host)) == [open_to_all, executors, lists]
    place.file("etc/jwt").chmod(0o644)
    flags[0] = {
        "ip": "10.0.0.1",
        "authenticate_http_executors": "true",
        "acls": '{"permissive": false}',
        "jwt_secret_key": "/etc/jwt",
    }
    mode = "FAIL names: /etc/jwt (--jwt_secret_key) has mode 0644: others may have read its secrets"
    assert said(doctor.names(place.host)) == [open_to_all.replace(" on every address of its host", ""), mode]
    place.env["MESOS_GPU_AGENT"] = "h:7"
    answers[0] = list
    (place.root / "etc/jwt").chmod(0o600)
    assert said(doctor.names(place.host)) == [
        "OK names: h:7 asks for credentials, and its access control lists refuse what they do not list"
    ]

    def silent() -> list[str]:
        raise ConnectionRefusedError

    answers[0] = silent
    assert said(doctor.names(place.host)) == ["OK names: no agent answers at h:7"]


def test_doctor_says_by_what_cards_can_be_shared(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    able = Sharing(900, ((Ability.SHIM, ""),))
    unable = Sharing(900, ((Ability.SHIM, "no"),))

    class Abilities:
        def __init__(self, _env: object) -> None:
            pass

        def at_once(self, inventory: Inventory) -> Inventory:
            return inventory

    monkeypatch.setattr(doctor, "Abilities", Abilities)
    cards = [
        replace(place.gpus[0], id=GpuId(f"GPU-{n}"), minor=n, sharing=able if n < 2 else unable)
        for n in range(3)
    ]
    can, cannot = (words_of(sharing) for sharing in (able, unable))
    place.gpus = tuple(cards[:2])
    assert said(doctor.shares(place.here)) == [f"OK shares: {can}"]
    place.gpus = tuple(cards)
    assert said(doctor.shares(place.here)) == [
        f"OK shares: GPU-0, GPU-1: {can}",
        f"WARN shares: GPU-2: {cannot}",
    ]
    assert said(doctor.shares(place.host)) == []
    assert said(doctor.shares(replace(place.here, inventory=None))) == []
    place.source = "simulated"
    assert len(said(doctor.shares(place.host))) == 2
    place.gpus = ()
    assert said(doctor.shares(place.here)) == []


def test_doctor_goes_on_after_a_check_that_breaks_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class Probe:
        closed = False

        def survey(self) -> None:
            raise Unavailable("NVML fails", remedy="reboot")

        def close(self) -> None:
            self.closed = True

    def broken(error: Exception) -> Callable[[Host], Iterable[Finding]]:
        def check(_host: Host) -> Iterable[Finding]:
            raise error

        return check

    fine = Finding("fine", Level.OK, "well")
    checks = {
        "ours": broken(Unavailable("why", remedy="this")),
        "the system's": broken(PermissionError(13, "denied")),
        "fine": lambda _host: [fine],
    }
    monkeypatch.setattr(doctor, "CHECKS", checks)
    probe = Probe()
    assert doctor.diagnose(probe, place.root, {}, place.root) == (  # type: ignore[arg-type]
        Finding("nvml", Level.FAIL, "NVML fails", "reboot"),
        Finding("ours", Level.FAIL, "why", "this"),
        Finding("the system's", Level.FAIL, "[Errno 13] denied", "run as root"),
        fine,
    )
    assert probe.closed
