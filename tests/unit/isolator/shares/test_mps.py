"""MPS on a host: why it cannot be used, who may use it, what a card's row says, which cgroups its daemon has."""

import os
from pathlib import Path

import pytest

from isolator.shares.by_mps import ByMps, domain_of
from isolator.shares.mps import ability, compute_mode
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.ability import cap_for, most_clients, no_users, probe, refusal
from isolator.shares.mps.daemon import Domain, Host, own_cgroups
from isolator.shares.tenancy import Tenancy
from mesos_gpu.adapters.mps_control import MAX_PATH, Limits, too_long
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.card import Ability
from mesos_gpu.model.shares.share import EVERYBODY, Method, Share
from tests.doubles.mps import fake_mps

GPU = GpuId("GPU-00112233-4455-6677-8899-aabbccddeeff")
HALF = Share(500, 20480, 20480, Method.SHIM_MPS2, "alice")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with both programs."""
    for name in ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root, in the host's pid namespace."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(ability, "_HOST_PID_NAMESPACE", os.stat("/proc/self/ns/pid").st_ino)


@pytest.mark.usefixtures("fit")
@pytest.mark.parametrize(
    ("driver", "three", "two"),
    [
        ("535.261.03", "driver 535.261.03 is older than 615", ""),
        ("614.99", "driver 614.99 is older than 615", ""),
        ("615.71.09", "", ""),
        ("", "driver none is older than 615", ""),
    ],
)
def test_the_protocol_follows_from_the_driver(programs: Path, driver: str, three: str, two: str) -> None:
    assert probe({"PATH": str(programs)}, driver) == {Ability.MPS3: three, Ability.MPS2: two}


def why(env: dict[str, str]) -> str:
    """Why neither protocol can be used with a driver that has both."""
    said = set(probe(env, "615.71.09").values())
    assert len(said) == 1
    return said.pop()


@pytest.mark.usefixtures("fit")
def test_mps_names_what_the_host_lacks(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"PATH": str(programs)}
    assert why(env) == ""
    assert why({**env, "MESOS_GPU_USER_POOL": "60000-60999"}).startswith(
        "MESOS_GPU_USER_POOL gives each task"
    )
    with monkeypatch.context() as patch:
        patch.setattr(ability, "_HOST_PID_NAMESPACE", 1)
        assert why(env) == "agents, or their executors, are in a pid namespace of their own"
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 1000)
        assert why(env) == "agents do not run as root"
    with monkeypatch.context() as patch:
        patch.setattr(compute_mode, "nvml_of", lambda _: None)
        assert why(env) == "nvidia-ml-py is not installed, which sets compute modes"
    with monkeypatch.context() as patch:
        patch.setattr(ability, "host_of", lambda _: Host(None))
        assert why(env) == "nvidia-cuda-mps-control is not installed"


@pytest.mark.parametrize(
    ("uid", "cards", "words"),
    [
        (1000, 1, ""),
        (0, 1, "task of root"),
        (None, 1, "needs to know the user"),
        (1000, 2, "shares of several cards"),
    ],
)
def test_mps_client_must_be_a_user_of_the_card(uid: int | None, cards: int, words: str) -> None:
    assert words in refusal(uid, cards)
    assert bool(refusal(uid, cards)) == bool(words)


@pytest.mark.parametrize(
    ("capability", "old"), [("6.1", True), ("7.0", False), ("12.0", False), (None, False)]
)
def test_cards_before_volta_are_too_old(capability: str | None, old: bool) -> None:
    assert bool(ability.too_old(capability)) is old


@pytest.mark.parametrize(
    ("cuda", "most"),
    [("12.2", 48), ("13.0", 48), ("13.1", 60), ("13.4", 60), ("14.0", 60), (None, 48), ("?", 48)],
)
def test_a_server_takes_so_many_clients(cuda: str | None, most: int) -> None:
    assert most_clients(cuda) == most


def test_users_share_a_server_where_the_host_permits_it_and_the_daemon_can(tmp_path: Path) -> None:
    program = Path(fake_mps.program(str(tmp_path), 2))
    permitted = {"MESOS_GPU_MPS_USERS": "all"}
    assert no_users({}, Host(program)) == "MESOS_GPU_MPS_USERS is not 'all', so a server is for one user only"
    assert no_users(permitted, Host(program)) == "this driver's MPS daemon serves one user at a time"
    assert no_users(permitted, Host(None)) == "nvidia-cuda-mps-control is not installed"
    program = Path(fake_mps.program(str(tmp_path), 2, multiuser=True))
    assert no_users(permitted, Host(program)) == ""
    with pytest.raises(BadConfiguration, match="MESOS_GPU_MPS_USERS is 'yes'") as bad:
        no_users({"MESOS_GPU_MPS_USERS": "yes"}, Host(program))
    assert bad.value.remedy == "set it to own or all"


@pytest.mark.parametrize(
    ("domain", "user", "permitted", "words"),
    [
        ("nobody", "nobody", False, ""),
        (EVERYBODY, "nobody", True, ""),
        (EVERYBODY, "nobody", False, "MESOS_GPU_MPS_USERS is not 'all'"),
        (EVERYBODY, "root", True, "MPS would let a task of root change the limits of others"),
        (EVERYBODY, None, True, "MPS needs to know the user"),
        (EVERYBODY, "no-such-user", True, "it has no user no-such-user"),
        ("no-such-user", "nobody", True, "it has no user no-such-user"),
    ],
)
def test_a_host_believes_no_scheduler_that_several_users_may_share(
    tmp_path: Path, domain: str, user: str | None, permitted: bool, words: str
) -> None:
    by = ByMps(Host(Path(fake_mps.program(str(tmp_path), 2, multiuser=True))))
    share = Share(250, 1, 1, Method.SHIM_MPS2, domain)
    (card,) = simulated_gpus(1, "NVIDIA A100-SXM4-80GB", seed="mps")
    own = {"MESOS_GPU_MPS_USERS": "all"} if permitted else {}
    tenancy = Tenancy("t1", "c1", (card,), share, tmp_path, own, user=user)
    said = by.lacks(tenancy)
    assert said.startswith(words)
    assert bool(said) == bool(words)
    if not words and domain == EVERYBODY:
        assert domain_of(tenancy, card).uid == 0


def test_a_row_says_which_domain_it_is() -> None:
    domain = Domain(GPU, 1000, 3)
    assert Domain.of(str(domain)) == domain
    assert len(domain.key) == 8
    assert domain.key == Domain(GPU, 1000, 2).key != Domain(GPU, 1001, 3).key


@pytest.mark.parametrize(
    "text", ["", GPU, f"{GPU} 1000", f"{GPU} alice 2", f"{GPU} 1000 4", f"{GPU} 1000 2 more"]
)
def test_a_row_that_says_something_else_is_refused(text: str) -> None:
    with pytest.raises(BadConfiguration, match="a row of MPS that says"):
        Domain.of(text)


def test_percentages_are_those_of_the_card_unless_the_operator_allows_all() -> None:
    assert cap_for(HALF, "8.0", {}).percent == 50
    assert cap_for(Share(700, 1, 1, Method.SHIM_MPS2), "9.0", {}).percent == 51
    assert (
        cap_for(Share(700, 1, 1, Method.SHIM_MPS2), "9.0", {"MESOS_GPU_MPS_PERCENTAGES": "any"}).percent == 70
    )
    with pytest.raises(Unavailable, match="9 thousandths of a card are less than MPS can give"):
        cap_for(Share(9, 1, 1, Method.SHIM_MPS2), "8.0", {})
    with pytest.raises(BadConfiguration, match="MESOS_GPU_MPS_PERCENTAGES is 'all'"):
        cap_for(HALF, "9.0", {"MESOS_GPU_MPS_PERCENTAGES": "all"})


def test_mps_daemon_has_the_largest_percentage() -> None:
    assert mps.most_of((Limits(25, 20), Limits(50, 10))) == Limits(50, 20)
    assert mps.most_of((Limits(25, 20), Limits(50, None))) == Limits(50, None)


def test_paths_too_long_for_sockets_are_reported_with_their_length() -> None:
    assert too_long(Path("/" + "x" * (MAX_PATH - 1))) == ""
    assert too_long(Path("/" + "x" * MAX_PATH)) == "its path has 88 bytes, and sockets allow 87"
    assert "its path has 89 bytes" in too_long(Path("/" + "ä" * 44))


MOUNTS = {
    "version 1": (
        [
            "cgroup /sys/fs/cgroup/cpu,cpuacct rw,cpu,cpuacct",
            "cgroup /sys/fs/cgroup/devices rw,devices",
            "cgroup /sys/fs/cgroup/systemd rw,xattr,name=systemd",
            "cgroup /elsewhere/devices ro,devices",
            "tmpfs /sys/fs/cgroup ro,mode=755",
        ],
        ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/devices", "/sys/fs/cgroup/systemd"],
    ),
    "version 2": (
        ["cgroup2 /sys/fs/cgroup rw,nsdelegate", "cgroup2 /run/mesos-gpu/cgroup2 rw"],
        ["/sys/fs/cgroup"],
    ),
    "both": (
        ["cgroup /sys/fs/cgroup/pids rw,pids", "cgroup2 /sys/fs/cgroup/v\\0402 rw"],
        ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/v 2"],
    ),
}


@pytest.mark.parametrize(("mounts", "expected"), MOUNTS.values(), ids=MOUNTS)
def test_the_daemon_has_a_cgroup_in_each_hierarchy_once(
    tmp_path: Path, mounts: list[str], expected: list[str]
) -> None:
    lines = []
    for number, mount in enumerate(mounts):
        kind, point, options = mount.split(" ", 2)
        lines.append(f"{30 + number} 25 0:{number} / {point} rw,nosuid - {kind} {kind} {options}\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("".join(lines))
    domain = Domain(GPU, 1000)
    groups = own_cgroups(domain, tmp_path)
    assert [str(group.path) for group in groups] == [
        f"{point}/mesos_gpu/mps-{domain.key}" for point in expected
    ]
    assert all(group.own for group in groups)
    kinds = {mount.split(" ", 1)[0].replace("tmpfs", "cgroup") for mount in mounts}
    assert {group.version for group in groups} == {
        "cgroup2" if kind == "cgroup2" else "cgroup1" for kind in kinds
    }


def test_a_note_that_was_cut_short_is_no_note(tmp_path: Path) -> None:
    """The writer was killed, or the disk was full: what runs without a note is ended by the next share."""
    host, domain = Host(None, root=tmp_path), Domain(GPU, 1000)
    for text in ("", "[", '[4711, 99, "a boot'):
        host.beside(domain, "daemon").write_text(text)
        assert mps.daemon_pid(host, domain) is None


def test_processes_that_would_not_die_are_waited_for_in_one_hierarchy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Group:
        def __init__(self, name: str, pids: list[int]) -> None:
            self.name, self.pids = name, pids

        def remove(self) -> list[int]:
            asked.append(self.name)
            return self.pids

    groups = [Group("gone", []), Group("stuck", [4711]), Group("stuck as well", [4711])]
    monkeypatch.setattr(mps, "own_cgroups", lambda _: groups)
    assert mps.undo(Host(None, root=tmp_path), f"{GPU} 1000 2") == [4711]
    assert asked == ["gone", "stuck"]


def test_a_host_that_is_too_busy_to_mount_in_time_has_no_daemon_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "START_S", 0.1)
    with pytest.raises(Unavailable, match=r"sleep did not end within 0\.1 s"):
        mps._on_host(["sleep", "60"])
