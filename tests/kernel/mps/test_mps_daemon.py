"""NVIDIA's real MPS daemon: made by the first share, adopted by the next, told and read back, ended by the undo."""

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.devices import cgroups
from isolator.devices.rules import DriverFacts, nvidia_devices, rules_of
from isolator.gpus.ledger import Claimed, Ledger, Owner
from isolator.gpus.share_claims import CardTrace, Room, ShareClaim
from isolator.node.reaper import strangers
from isolator.shares import card
from isolator.shares.by_mps import ByMps
from isolator.shares.mps import compute_mode
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.ability import no_users
from isolator.shares.mps.compute_mode_child import EXCLUSIVE_PROCESS
from isolator.shares.mps.daemon import Domain, Host, join
from isolator.shares.tenancy import Tenancy
from mesos_gpu.adapters.mps3 import namespace_of
from mesos_gpu.adapters.mps_control import MAX_PATH, Limits, SettingsRejected
from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.errors import Conflict, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.shares.share import Method, Share
from tests.conftest import wait_until
from tests.doubles.mps import fake_mps
from tests.mps_hosts import OTHER, PYTHON, USER, Bindings, daemon_of, domain_on, host_with, real_program

pytestmark = pytest.mark.kernel
QUARTER, HALF = Limits(25, 20480), Limits(50, 1500)


@pytest.fixture(scope="module")
def program(open_directory: Path) -> Path:
    return real_program(open_directory)


@pytest.fixture
def bindings(tmp_path: Path) -> Bindings:
    return Bindings(tmp_path / "bindings")


@pytest.fixture
def host(program: Path, bindings: Bindings) -> Iterator[Host]:
    with host_with(program, bindings) as host:
        yield host


@pytest.fixture
def domain(host: Host) -> Domain:
    return domain_on(host)


def asked(host: Host, domain: Domain, *commands: str) -> list[str]:
    return host.mps(domain).control.ask(*commands)


def settings(host: Host, domain: Domain) -> list[str]:
    return asked(
        host, domain, "get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"
    )


def gone(pid: int) -> bool:
    return start_ticks(pid) is None


# --- its life


def test_daemon_is_made_adopted_and_undone(host: Host, domain: Domain, bindings: Bindings) -> None:
    first = join(host, domain, "t1", QUARTER, {})
    pid = daemon_of(host, domain)
    assert bindings.mode(domain.gpu) == EXCLUSIVE_PROCESS
    assert first.env == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mesos-gpu/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M",
    }
    assert first.mounts == (
        (str(host.memory(domain)), "/dev/shm"),
        (str(host.pipes(domain)), "/run/mesos-gpu/mps"),
    )
    join(host, domain, "t2", HALF, {"t1": QUARTER})
    assert daemon_of(host, domain) == pid
    host.beside(domain, "mode.4711").touch()  # of a child that was killed as it wrote its note
    assert mps.undo(host, str(domain)) == []
    assert gone(pid)
    assert bindings.mode(domain.gpu) == 0
    assert not any(group.path.exists() for group in mps.own_cgroups(domain))
    assert mps.undo(host, str(domain)) == []  # again, as a monitor may that was killed in between


def test_daemon_is_in_its_own_cgroups_and_has_no_parent(host: Host, domain: Domain) -> None:
    join(host, domain, "t1", QUARTER, {})
    pid = daemon_of(host, domain)
    mounted = [line.split(" - ")[1] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    hierarchies = [line for line in mounted if line.startswith(("cgroup ", "cgroup2 "))]
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    own = [path for _, _, path in lines if path == f"/mesos_gpu/mps-{domain.key}"]
    assert len(own) == len(set(hierarchies))
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"PPid:\t{os.getpid()}\n" not in status
    assert os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    assert os.getsid(pid) != os.getsid(0)


EXECUTOR = """
import os, signal, sys
from pathlib import Path
from isolator.host import processes
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.daemon import Domain, Host
from mesos_gpu.adapters.mps_control import Limits
processes.become_subreaper()
host = Host(Path(sys.argv[1]), None, None, Path(sys.argv[2]))
mps.join(host, Domain.of(sys.argv[3]), "t1", Limits(25, 20480), {})
print("joined", processes.kill_descendants(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_daemon_outlives_the_executor_that_made_it_and_is_adopted(host: Host, domain: Domain) -> None:
    """An executor adopts the orphans of its task and ends them; then it is killed itself."""
    arguments = [str(host.program), str(host.root), str(domain)]
    done = subprocess.run(
        [PYTHON, "-c", EXECUTOR, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "joined []\n", done.stderr
    assert done.returncode == -signal.SIGKILL
    pid = daemon_of(host, domain)
    join(host, domain, "t2", HALF, {"t1": QUARTER})
    assert daemon_of(host, domain) == pid
    assert settings(host, domain) == ["50.0", "20G"]


KILLED = """
import os, signal, sys
from pathlib import Path
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.compute_mode import Nvml
from isolator.shares.mps.daemon import Domain, Host
from mesos_gpu.adapters.mps_control import Limits
name, when = sys.argv[5:]
step = getattr(mps, name)
def dies(*given, **named):
    if when == "after":
        step(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(mps, name, dies)
host = Host(Path(sys.argv[1]), None, Nvml(Path(sys.argv[4])), Path(sys.argv[2]))
mps.join(host, Domain.of(sys.argv[3]), "t1", Limits(25, 20480), {})
"""
STEPS = [
    (name, when)
    for name in ("_make_directories", "_on_host", "_spawn", "_await")
    for when in ("before", "after")
]


@pytest.mark.parametrize("then", ["undone", "made anew"])
@pytest.mark.parametrize(("step", "when"), STEPS, ids=["-".join(each).strip("_") for each in STEPS])
def test_an_executor_that_is_killed_at_any_step_leaves_nothing_that_stays(
    host: Host, domain: Domain, bindings: Bindings, step: str, when: str, then: str
) -> None:
    assert host.nvml is not None
    arguments = [str(host.program), str(host.root), str(domain), str(host.nvml.bindings), step, when]
    done = subprocess.run(
        [PYTHON, "-c", KILLED, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    if then == "made anew":
        join(host, domain, "t2", HALF, {})
        daemon_of(host, domain)  # one, and no other
        assert settings(host, domain) == ["50.0", "1G"]
        assert bindings.mode(domain.gpu) == EXCLUSIVE_PROCESS
    assert mps.undo(host, str(domain)) == []
    assert bindings.mode(domain.gpu) == 0
    assert not any(group.path.exists() for group in mps.own_cgroups(domain))
    assert not host.memory(domain).exists()


def test_two_domains_on_one_host_are_apart(host: Host, domain: Domain) -> None:
    other = domain_on(host, OTHER)
    join(host, domain, "t1", QUARTER, {})
    join(host, other, "t2", HALF, {})
    assert daemon_of(host, domain) != daemon_of(host, other)
    assert (settings(host, domain), settings(host, other)) == (["25.0", "20G"], ["50.0", "1G"])
    assert mps.undo(host, str(domain)) == []
    assert settings(host, other) == ["50.0", "1G"]


@pytest.mark.long
def test_the_first_share_waits_50_ms_at_most(host: Host) -> None:
    """Best of several, with its compute mode set, as others are at work on the machine, too; where a bare interpreter
    takes over 12 ms to start at that moment, four such starts: three of the steps are programs."""
    took_ms, bare_ms = list[float](), list[float]()

    def is_quick() -> bool:
        return any(took <= max(50.0, 4 * bare) for took, bare in zip(took_ms, bare_ms, strict=True))

    while len(took_ms) < 40 and (len(took_ms) < 5 or not is_quick()):
        domain = domain_on(host)
        begun = time.monotonic()
        join(host, domain, "t1", QUARTER, {})
        took_ms.append((time.monotonic() - begun) * 1e3)
        mps.undo(host, str(domain))
        begun = time.monotonic()
        subprocess.run([PYTHON, "-I", "-S", "-c", ""], check=True)
        bare_ms.append((time.monotonic() - begun) * 1e3)
    median = sorted(took_ms)[len(took_ms) // 2]
    print(
        f"first share, ms: best {min(took_ms):.1f}, median {median:.1f}; a bare interpreter {min(bare_ms):.1f}"
    )
    assert is_quick()


# --- what it is told


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(1, 1), ["1.0", "1M"]),
        (Limits(33, 1023), ["33.0", "1023M"]),
        (Limits(100, 81920), ["100.0", "80G"]),
    ],
)
def test_settings_are_read_back(host: Host, domain: Domain, limits: Limits, said: list[str]) -> None:
    join(host, domain, "t1", limits, {})
    assert settings(host, domain) == said


def test_the_most_of_all_shares_is_the_daemons_and_each_its_own(host: Host, domain: Domain) -> None:
    join(host, domain, "t1", Limits(50, 30000), {})
    joined = join(host, domain, "t2", Limits(25, 40000), {"t1": Limits(50, 30000)})
    assert settings(host, domain) == ["50.0", "39G"]
    assert joined.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert joined.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=40000M"


@pytest.mark.parametrize("limits", [Limits(101, 1024), Limits(0, 1024), Limits(25, 0)], ids=str)
def test_settings_that_the_daemon_does_not_take_are_found(host: Host, domain: Domain, limits: Limits) -> None:
    """The daemon says nothing then, and its exit code is 0."""
    join(host, domain, "t1", QUARTER, {})
    with pytest.raises(SettingsRejected, match="are not as set"):
        join(host, domain, "t2", limits, {})


def test_settings_that_a_client_changed_are_found_and_set_again(host: Host, domain: Domain) -> None:
    """Whoever reaches its pipes may set its defaults: 535 asks for no privilege."""
    join(host, domain, "t1", QUARTER, {})
    daemon = host.mps(domain)
    daemon.holds({"t1": QUARTER}, QUARTER)
    assert asked(host, domain, "set_default_active_thread_percentage 77") == ["77.0"]
    with pytest.raises(SettingsRejected, match=r"its defaults are 77\.0 and 20G, not 25\.0 and 20G"):
        daemon.holds({"t1": QUARTER}, QUARTER)
    daemon.open(domain.gpu, domain.uid, QUARTER)
    daemon.holds({"t1": QUARTER}, QUARTER)


def test_daemon_opens_its_own_card_only(host: Host, domain: Domain) -> None:
    rules = rules_of(nvidia_devices(DriverFacts(), [3]))
    join(host, domain, "t1", QUARTER, {}, rules)
    (group,) = [each for each in mps.own_cgroups(domain) if (each.path / "devices.list").exists()]
    assert group.allows_exactly(rules)
    assert group.path.parent.name == cgroups.OWN_ROOT


# --- who may reach it


def as_user(host: Host, domain: Domain, uid: int, command: str) -> str:
    """What a user's process on the host gets from the control program."""
    assert host.program is not None
    done = subprocess.run(
        [host.program],
        input=f"{command}\n",
        env=host.mps(domain).control.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        user=uid,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("uid", [USER, OTHER])
def test_pipes_of_the_daemon_are_closed_to_users_of_the_host(host: Host, domain: Domain, uid: int) -> None:
    join(host, domain, "t1", QUARTER, {})
    assert "Cannot find MPS control daemon process" in as_user(host, domain, uid, "get_server_list")


def test_daemon_is_protected_from_its_own_user(host: Host, domain: Domain) -> None:
    """A task has the directory mounted; here its path is opened for the time of the test."""
    join(host, domain, "t1", QUARTER, {})
    pid = daemon_of(host, domain)
    host.root.chmod(0o711)
    try:
        assert as_user(host, domain, USER, "quit") == "Not enough privilege to execute quit command\n"
        assert (
            as_user(host, domain, USER, "start_server -uid 0") == f"Insufficient privileges for UID {USER}\n"
        )
        script = f"kill -9 {pid}; touch {host.pipes(domain)}/x; rm -f {host.pipes(domain)}/control"
        subprocess.run(["/bin/sh", "-c", script], user=USER, capture_output=True, timeout=30, check=False)
        notes = (
            f"cat {host.root}/{domain.key}.daemon {host.root}/{domain.key}.log > /dev/null; ls {host.root}"
        )
        done = subprocess.run(
            ["/bin/sh", "-c", notes], user=USER, capture_output=True, timeout=30, check=False
        )
        assert done.stdout == b""
    finally:
        host.root.chmod(0o700)
    assert sorted(os.listdir(host.pipes(domain)))[0] == "control"
    assert "x" not in os.listdir(host.pipes(domain))
    assert settings(host, domain) == ["25.0", "20G"]


# --- when it fails


def _fill(directory: Path) -> None:
    for number in range(mps.MAX_FILES + 1):
        os.mknod(directory / str(number))


def test_the_shared_memory_of_a_domain_has_an_end(host: Host, domain: Domain) -> None:
    """A part of half of the host's memory for each card; and so many files."""
    cards = 25
    join(replace(host, cards=cards), domain, "t1", QUARTER, {})
    memory = host.memory(domain)
    size = os.statvfs(memory).f_blocks * os.statvfs(memory).f_frsize
    of_host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert size == pytest.approx(of_host / 2 / cards, rel=0.01)
    with (memory / "large").open("wb") as file, pytest.raises(OSError, match="No space left") as full:
        os.posix_fallocate(file.fileno(), 0, size + 4096)
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        _fill(memory)
    assert mps.undo(host, str(domain)) == []
    assert not memory.exists()


def test_a_hung_daemon_takes_no_more_shares_and_its_tasks_are_left_alone(host: Host, domain: Domain) -> None:
    join(host, domain, "t1", QUARTER, {})
    pid = daemon_of(host, domain)
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="is hung, and its 1 other tasks have not left it"):
        join(host, domain, "t2", HALF, {"t1": QUARTER})
    assert 2.9 < time.monotonic() - begun < 30
    assert daemon_of(host, domain) == pid
    os.kill(pid, signal.SIGCONT)
    join(host, domain, "t2", HALF, {"t1": QUARTER})
    assert daemon_of(host, domain) == pid


def test_a_hung_daemon_that_nobody_uses_is_made_anew(host: Host, domain: Domain) -> None:
    join(host, domain, "t1", QUARTER, {})
    pid = daemon_of(host, domain)
    os.kill(pid, signal.SIGSTOP)
    join(host, domain, "t2", HALF, {})
    assert gone(pid)
    assert settings(host, domain) == ["50.0", "1G"]


def test_a_hung_daemon_is_ended_by_the_undo(host: Host, domain: Domain, bindings: Bindings) -> None:
    join(host, domain, "t1", QUARTER, {})
    pid = daemon_of(host, domain)
    os.kill(pid, signal.SIGSTOP)
    assert mps.undo(host, str(domain)) == []
    assert gone(pid)
    assert bindings.mode(domain.gpu) == 0


def test_a_killed_daemon_is_made_anew_with_its_settings_once_its_tasks_have_left(
    host: Host, domain: Domain
) -> None:
    join(host, domain, "t1", QUARTER, {})
    pid = daemon_of(host, domain)
    os.kill(pid, signal.SIGKILL)
    wait_until("it is gone", lambda: gone(pid))
    with pytest.raises(Unavailable, match="is gone, and its 1 other tasks have not left it"):
        join(host, domain, "t2", HALF, {"t1": QUARTER})
    join(host, domain, "t2", HALF, {})
    assert daemon_of(host, domain) != pid
    assert settings(host, domain) == ["50.0", "1G"]


def test_a_process_with_its_pid_is_not_taken_for_it(host: Host, domain: Domain) -> None:
    join(host, domain, "t1", QUARTER, {})
    note, pid = host.beside(domain, "daemon"), daemon_of(host, domain)
    text = note.read_text()
    note.write_text(text.replace(str(pid), str(os.getpid()), 1))  # of another start
    join(host, domain, "t2", HALF, {})
    assert note.read_text() != text
    assert gone(pid)


def test_a_path_that_is_too_long_for_sockets_is_refused(host: Host) -> None:
    """The daemon itself would end without a word."""
    deep = replace(host, root=host.root / ("x" * 70))
    domain = Domain(domain_on(host).gpu, USER)
    with pytest.raises(Unavailable, match="sockets allow 87"):
        join(deep, domain, "t1", QUARTER, {})
    assert mps.undo(deep, str(domain)) == []
    shutil.rmtree(deep.root)


def test_the_longest_path_that_is_allowed_does(host: Host) -> None:
    domain = domain_on(host)
    deep = replace(host, root=host.root / ("x" * (MAX_PATH - len(str(host.root)) - 1 - 9)))
    assert len(str(deep.pipes(domain))) == MAX_PATH
    join(deep, domain, "t1", QUARTER, {})
    assert settings(deep, domain) == ["25.0", "20G"]
    mps.undo(deep, str(domain))
    shutil.rmtree(deep.root)


@pytest.mark.parametrize(
    ("state", "why"),
    [({"broken": "Insufficient Permissions"}, "cannot be set: Insufficient Permissions"),
     ({"deaf": True}, "is 0 after"),
     ({"hang": True}, r"did not answer within 0\.5 s")],
    ids=["broken", "deaf", "hang"],
)  # fmt: skip
def test_card_without_its_compute_mode_is_not_shared(
    host: Host,
    domain: Domain,
    bindings: Bindings,
    monkeypatch: pytest.MonkeyPatch,
    state: dict[str, object],
    why: str,
) -> None:
    bindings.set(**state)
    with monkeypatch.context() as patch:
        patch.setattr(compute_mode, "DEADLINE_S", 0.5)
        with pytest.raises(Unavailable, match=why):
            join(host, domain, "t1", QUARTER, {})
    bindings.set()
    join(host, domain, "t1", QUARTER, {})
    assert bindings.mode(domain.gpu) == EXCLUSIVE_PROCESS
    assert mps.undo(host, str(domain)) == []
    assert bindings.mode(domain.gpu) == 0


# --- by protocol 3, on a fake


@pytest.fixture
def host3(tmp_path: Path, bindings: Bindings) -> Iterator[Host]:
    (tmp_path / "usr/bin").mkdir(parents=True)
    program = Path(fake_mps.program(str(tmp_path / "usr/bin"), 3))
    with host_with(program, bindings) as host:
        yield host


def test_tasks_of_a_daemon_have_namespaces_of_their_own(host3: Host) -> None:
    domain = domain_on(host3, protocol=3)
    first = join(host3, domain, "t1", QUARTER, {})
    second = join(host3, domain, "t2", HALF, {"t1": QUARTER})
    sources = [joined.mounts[1][0] for joined in (first, second)]
    assert sources == [str(host3.pipes(domain) / "domain" / namespace_of(task)) for task in ("t1", "t2")]
    assert all(os.path.isdir(source) for source in sources)
    assert first.env == {"CUDA_MPS_PIPE_DIRECTORY": "/run/mesos-gpu/mps"}
    host3.mps(domain).holds({"t1": QUARTER, "t2": HALF}, HALF)
    pid = daemon_of(host3, domain)
    assert mps.undo(host3, str(domain)) == []
    assert gone(pid)


@pytest.mark.parametrize("protocol", [2, 3])
def test_tasks_of_several_users_have_one_server_of_root(
    tmp_path: Path, bindings: Bindings, protocol: int
) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    program = Path(fake_mps.program(str(tmp_path / "usr/bin"), protocol, multiuser=True))
    with host_with(program, bindings) as host:
        domain = domain_on(host, 0, protocol)
        join(host, domain, "t1", QUARTER, {})
        join(host, domain, "t2", HALF, {"t1": QUARTER})
        host.mps(domain).holds({"t1": QUARTER, "t2": HALF}, mps.most_of((QUARTER, HALF)))
        command = Path(f"/proc/{daemon_of(host, domain)}/cmdline").read_text().split("\0")
        assert command[-2] == {2: "-multiuser-server", 3: "-m"}[protocol]
        assert mps.undo(host, str(domain)) == []


def test_a_driver_that_serves_one_user_at_a_time_has_no_server_of_several(
    host: Host, bindings: Bindings
) -> None:
    """NVIDIA's of 535: its host does not offer it, and what is tried nevertheless is refused."""
    permitted = {"MESOS_GPU_MPS_USERS": "all"}
    assert no_users(permitted, host) == "this driver's MPS daemon serves one user at a time"
    domain = domain_on(host, 0)
    with pytest.raises(Unavailable, match="does not start"):
        join(host, domain, "t1", QUARTER, {})
    assert mps.undo(host, str(domain)) == []
    assert bindings.mode(domain.gpu) == 0


def test_a_running_share_of_protocol_3_is_resized(
    host3: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "host_of", lambda *_: host3)
    domain, ledger, by = domain_on(host3, protocol=3), Ledger(tmp_path / "ledger.sqlite"), ByMps()
    before, after = (
        replace(each, share=replace(each.share, method=Method.DMEM_MPS3))
        for each in (tenancy_on(domain, "t1", milli, ledger) for milli in (250, 500))
    )
    claim(ledger, before, by)
    by.make(before, ledger)
    by.resize(after, ledger, before.share)
    host3.mps(domain).holds({"t1": Limits(50, 20480)}, Limits(50, 20480))


# --- with the node's ledger


def tenancy_on(domain: Domain, task: str, milli: int, ledger: Ledger) -> Tenancy:
    gpu = Gpu(
        id=domain.gpu, model="NVIDIA H100 80GB HBM3", memory_mib=81559, minor=0, pci_bus_id="", health=Health.OK,
        compute_capability="9.0",
    )  # fmt: skip
    share = Share(milli, 20480, 20480, Method.SHIM_MPS2, str(domain.uid))
    return Tenancy(task, f"container-{task}", (gpu,), share, ledger.directory, {"MESOS_GPU_ISOLATION": "off"})


def claim(ledger: Ledger, tenancy: Tenancy, by: ByMps) -> None:
    rooms = {gpu.id: Room(80000) for gpu in tenancy.gpus}
    answer = ledger.claim(
        tenancy.task, [gpu.id for gpu in tenancy.gpus], Owner.of(os.getpid()), container=tenancy.container,
        share=ShareClaim(tenancy.share, rooms, by.cards(tenancy)),
    )  # fmt: skip
    assert isinstance(answer, Claimed)


def test_the_row_of_the_card_is_made_adopted_and_undone_by_the_last_release(
    host: Host, domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "host_of", lambda *_: host)
    ledger, by = Ledger(tmp_path / "ledger.sqlite"), ByMps()
    one, two = (tenancy_on(domain, task, milli, ledger) for task, milli in (("t1", 300), ("t2", 250)))
    for tenancy in (one, two):
        assert by.lacks(tenancy) == ""
        with ledger.turn([domain.gpu]):
            claim(ledger, tenancy, by)
            given = by.make(tenancy, ledger)
        if tenancy is one:
            assert given.notes == (
                f"MPS lets it use 27 % of {domain.gpu}: 27 % instead of 30 %: half-precision results are right there "
                "on compute capability 9.0",
            )
            pid = daemon_of(host, domain)
    assert ledger.cards(domain.gpu) == (CardTrace(domain.gpu, "mps", str(domain)),)
    assert daemon_of(host, domain) == pid
    assert settings(host, domain) == ["27.0", "20G"]
    ledger.release("t1", Owner.of(os.getpid()), one.container)
    card.settle(ledger, [domain.gpu])
    assert daemon_of(host, domain) == pid
    ledger.release("t2", Owner.of(os.getpid()), two.container)
    card.settle(ledger, [domain.gpu])
    assert gone(pid)
    assert ledger.cards(domain.gpu) == ()


def test_the_daemon_of_a_shared_card_is_no_stranger_there(host: Host, domain: Domain, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    join(host, domain, "t1", QUARTER, {})
    pid, other = daemon_of(host, domain), GpuId("GPU-another")
    assert set(strangers(ledger, {domain.gpu: [pid]})) == {domain.gpu}  # the ledger knows nothing of it yet
    ledger.note(CardTrace(domain.gpu, mps.KIND, str(domain)))
    assert strangers(ledger, {domain.gpu: [pid]}) == {}
    assert set(strangers(ledger, {other: [pid]})) == {other}
    assert set(strangers(ledger, {domain.gpu: [pid, os.getppid()]})) == {domain.gpu}


def test_a_running_share_of_protocol_2_is_not_resized(
    host: Host, domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "host_of", lambda *_: host)
    ledger, by = Ledger(tmp_path / "ledger.sqlite"), ByMps()
    tenancy = tenancy_on(domain, "t1", 250, ledger)
    claim(ledger, tenancy, by)
    by.make(tenancy, ledger)
    by.resize(tenancy, ledger, tenancy.share)  # to what it has
    with pytest.raises(Conflict, match="cannot change while it runs"):
        by.resize(tenancy_on(domain, "t1", 500, ledger), ledger, tenancy.share)
