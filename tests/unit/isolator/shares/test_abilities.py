"""What a host can use to enforce shares: tried, reported with why not, and shown by the doctor."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolator.gpus.nvml_child import NvmlCalls
from isolator.node import doctor
from isolator.node.findings import Host, Level
from isolator.shares import abilities
from isolator.shares.abilities import MPS_RESERVE_MIB, Abilities, Known, Settings, settings_of, words_of
from isolator.shares.mps import ability as mps
from isolator.shares.mps.daemon import Host as MpsHost
from isolator.shares.shim import ability as shim_ability
from mesos_gpu.adapters.nvml.mig import MINORS
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.shares.card import Ability, MigInstance, Sharing
from tests.doubles.mps import fake_mps
from tests.doubles.nvml.mig_tables import MIG_TABLES

H100 = "NVIDIA H100 80GB HBM3"
PROGRAM = f"""
import sys
from pathlib import Path
from isolator.gpus.nvml_child import serve
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from tests.doubles.nvml.fake import FakeNvml
sys.exit(serve(FakeNvml(simulated_gpus(2, {H100!r}, seed="able"), Path(sys.argv[1]))))
"""
GPUS = simulated_gpus(2, H100, seed="able")
NO_MPS = {Ability.MPS3: "nvidia-cuda-mps-control is not installed", Ability.MPS2: "not installed, either"}
MPS = {Ability.MPS3: "", Ability.MPS2: ""}
INSTANCE = MigInstance("MIG-1", "1g.10gb", 9984, 16, 13, 0, 142, 125, 6, 1)
Able = Callable[..., Abilities]


def inventory(*sharing: Sharing | None, driver: str = "615.71.09") -> Inventory:
    """Make a report of NVML's, before it is completed."""
    said = sharing or (Sharing(80000), Sharing(80000))
    gpus = tuple(replace(gpu, sharing=each) for gpu, each in zip(GPUS, said, strict=False))
    return Inventory(gpus, "nvml", driver, "13.4")


def said_of(report: Inventory, card: int = 0) -> dict[Ability, str]:
    """Abilities of a card, each with why it cannot be used."""
    sharing = report.gpus[card].sharing
    assert sharing is not None
    return dict(sharing.abilities)


@pytest.fixture
def able(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Able:
    """Make the abilities of a host of the test's own; its libraries and MPS are as the test says."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def make(
        memacct: str | None = None,
        env: Mapping[str, str] | None = None,
        *,
        served: Mapping[Ability, str] = NO_MPS,
        shim: str = "",
        **state: Any,
    ) -> Abilities:
        tree = tmp_path / "cgroup"
        tree.mkdir(exist_ok=True)
        (tree / "mesos_gpu").mkdir(exist_ok=True)
        for directory in (tree, tree / "mesos_gpu"):
            (directory / "cgroup.subtree_control").write_text("memory")
        (tree / "cgroup.controllers").write_text("memory" + " dmem" * (memacct == "dmem"))
        if memacct == "dmem":
            (tree / "dmem.capacity").write_text("nvidia/0000:10:00.0/vidmem 85520809984\n")
        driver = {"tree": str(tree), **({"memacct": memacct} if memacct else {}), **state}
        (tmp_path / "nvml.json").write_text(json.dumps(driver))
        monkeypatch.setattr(mps, "probe", lambda env, version: dict(served))
        monkeypatch.setattr(shim_ability, "lacks", lambda env, inventory: shim)
        command = (sys.executable, "-c", PROGRAM, str(tmp_path / "nvml.json"))
        calls = NvmlCalls(command=command, deadline_s=60.0)
        return Abilities(env or {}, root=tmp_path, calls=calls, cgroups=tree)

    return make


@pytest.mark.parametrize(
    ("memacct", "driver", "dmem", "misc"),
    [
        ("dmem", "615.71.09", "", "the kernel's dmem controller is used"),
        ("misc", "615.71.09", "no dmem controller", ""),
        ("off", "615.71.09", "the driver enforces no limits", "the driver enforces no limits"),
        (None, "535.261.03", "driver 535.261.03 is older than 615", "driver 535.261.03 is older than 615"),
        (None, "616.1", "the driver is older than 615", "the driver is older than 615"),
    ],
)
def test_limits_by_cgroup_are_tried(
    able: Able, tmp_path: Path, memacct: str | None, driver: str, dmem: str, misc: str
) -> None:
    said = said_of(able(memacct).at_once(inventory(driver=driver)), 1)
    for ability, why in ((Ability.DMEM, dmem), (Ability.MISC, misc)):
        assert (why in said[ability]) if why else said[ability] == ""
    assert not list(tmp_path.glob("cgroup/mesos_gpu/.abilities-*")), "the trial is gone"
    left = json.loads((tmp_path / "nvml.json").read_text()).get("limits", {})
    assert all(soft == 0 and hard == (1 << 64) - 1 for soft, hard in left.values()), "and so are its limits"


def test_ability_of_a_card_is_not_lost_by_the_fault_of_another(able: Able) -> None:
    report = able("misc", cards={"1": {"lost": True}}).at_once(inventory())
    assert said_of(report, 0)[Ability.MISC] == ""
    assert "GPU is lost" in said_of(report, 1)[Ability.MISC]


def test_a_host_without_cgroups_of_version_2_says_so(able: Able, tmp_path: Path) -> None:
    host = able("misc")
    (tmp_path / "cgroup" / "cgroup.controllers").unlink()
    assert said_of(host.at_once(inventory()))[Ability.MISC].startswith("cgroup version 2 is not mounted")


@pytest.mark.parametrize(("env", "root", "why"), [
    ({"MESOS_GPU_ISOLATION": "off"}, True, "MESOS_GPU_ISOLATION=off: a task has no devices, cgroup and mounts of its"
     " own"),
    ({}, False, "agents do not run as root"),
])  # fmt: skip
def test_a_host_that_isolates_nothing_enforces_nothing(
    able: Able, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], root: bool, why: str
) -> None:
    host = able("misc", env, served=MPS)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    said = said_of(host.at_once(inventory(Sharing(80000), Sharing(9984, mig=True, instances=(INSTANCE,)))))
    assert said == {**dict.fromkeys(Ability, why), Ability.MIG: "its MIG mode is off"}


def test_every_ability_is_named_with_a_reason_or_none(able: Able) -> None:
    said = said_of(able("misc", shim="shim.off is there").at_once(inventory()))
    assert list(said) == list(Ability)
    assert {ability for ability, why in said.items() if not why} == {Ability.MISC}


@pytest.mark.parametrize(
    ("env", "sharing", "caps", "why"),
    [
        ({}, Sharing(9984, mig=True, instances=(INSTANCE,)), True, ""),
        ({}, Sharing(9984, mig=True, instances=(INSTANCE,)), False, f"the driver has no /{MINORS}"),
        ({"MESOS_GPU_MIG": "off"}, Sharing(9984, mig=True, instances=(INSTANCE,)), True, "MESOS_GPU_MIG=off"),
        ({}, Sharing(80000, mig=True), True, "it has no instances: make them"),
        ({"MESOS_GPU_MIG": "dynamic"}, Sharing(80000, mig=True), True, "the driver names no profiles"),
        ({"MESOS_GPU_MIG": "dynamic"}, Sharing(80000, mig=True, profiles=MIG_TABLES[H100].profiles()), True, ""),
    ],
)  # fmt: skip
def test_card_in_mig_mode_has_only_instances(
    able: Able, tmp_path: Path, env: dict[str, str], sharing: Sharing, caps: bool, why: str
) -> None:
    if caps:
        (tmp_path / MINORS).parent.mkdir(parents=True)
        (tmp_path / MINORS).write_text("config 1\n")
    said = said_of(able("misc", env, served=MPS).at_once(inventory(sharing)))
    assert said.pop(Ability.MIG).startswith(why)
    assert bool(said_of(able("misc", env).at_once(inventory(sharing)))[Ability.MIG]) == bool(why)
    assert set(said.values()) == {"its MIG mode is on"}


def test_clients_of_mps_are_reported_where_it_is_used(able: Able) -> None:
    for served, clients in ((MPS, 60), (NO_MPS, 0)):
        (card, _) = able(served=served).at_once(inventory()).gpus
        assert card.sharing is not None
        assert card.sharing.mps_clients == clients


def test_users_may_share_a_server_where_the_operator_permits_it_and_there_is_one(
    able: Able, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = fake_mps.program(str(tmp_path), 2, multiuser=True)
    monkeypatch.setattr(mps, "host_of", lambda env: MpsHost(Path(program)))
    for wish, served, permitted in (("all", MPS, True), ("all", NO_MPS, False), ("own", MPS, False)):
        (card, _) = able(env={"MESOS_GPU_MPS_USERS": wish}, served=served).at_once(inventory()).gpus
        assert card.sharing is not None
        assert card.sharing.mps_users is permitted
        assert ("users may share a server of MPS" in words_of(card.sharing)) is permitted


def test_an_operator_is_told_once_why_users_cannot_share_a_server(
    able: Able, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = fake_mps.program(str(tmp_path), 2)
    monkeypatch.setattr(mps, "host_of", lambda env: MpsHost(Path(program)))
    host = able(env={"MESOS_GPU_MPS_USERS": "all"}, served=MPS)
    for _ in range(2):
        host.at_once(inventory())
    assert [record.getMessage() for record in caplog.records] == [
        "tasks of several users cannot have one server of MPS: this driver's MPS daemon serves one user at a time"
    ]


def test_profiles_are_reported_only_where_the_host_makes_instances(able: Able) -> None:
    sharing = Sharing(80000, mig=True, profiles=MIG_TABLES[H100].profiles())
    for wish, profiles in (("static", ()), ("dynamic", sharing.profiles), ("off", ())):
        (card,) = able(env={"MESOS_GPU_MIG": wish}).at_once(inventory(sharing)).gpus
        assert card.sharing is not None
        assert card.sharing.profiles == profiles


@pytest.mark.parametrize(
    ("env", "served", "sharing", "memory_mib"),
    [
        ({}, NO_MPS, Sharing(80000), 80000),
        ({}, MPS, Sharing(80000), 80000 - MPS_RESERVE_MIB),
        ({}, {Ability.MPS3: "older", Ability.MPS2: ""}, Sharing(80000), 80000 - MPS_RESERVE_MIB),
        ({"MESOS_GPU_SHARE_RESERVE_MIB": "0"}, MPS, Sharing(80000), 80000),
        ({"MESOS_GPU_SHARE_RESERVE_MIB": "2048"}, NO_MPS, Sharing(80000), 77952),
        ({"MESOS_GPU_SHARE_RESERVE_MIB": "90000"}, NO_MPS, Sharing(80000), 0),
        ({}, MPS, Sharing(80000, mig=True), 80000),
    ],
)
def test_memory_of_an_mps_server_is_not_shared(
    able: Able, env: dict[str, str], served: Mapping[Ability, str], sharing: Sharing, memory_mib: int
) -> None:
    (card,) = able(env=env, served=served).at_once(inventory(sharing, driver="550.1")).gpus
    assert card.sharing is not None
    assert card.sharing.memory_mib == memory_mib


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"MESOS_GPU_MIG": "on"}, "MESOS_GPU_MIG is 'on'"),
        ({"MESOS_GPU_MPS_USERS": "yes"}, "MESOS_GPU_MPS_USERS is 'yes'"),
        ({"MESOS_GPU_MPS_PERCENTAGES": "50"}, "MESOS_GPU_MPS_PERCENTAGES is '50'"),
        ({"MESOS_GPU_SHARE_RESERVE_MIB": "-1"}, "MESOS_GPU_SHARE_RESERVE_MIB is '-1'"),
        ({"MESOS_GPU_SHARE_RESERVE_MIB": "1GiB"}, "MESOS_GPU_SHARE_RESERVE_MIB is '1GiB'"),
    ],
)
def test_ability_setting_that_is_invalid_is_named(env: dict[str, str], says: str) -> None:
    with pytest.raises(BadConfiguration, match=says):
        settings_of(env)


def test_settings_have_defaults() -> None:
    assert settings_of({"MESOS_GPU_SHARE_RESERVE_MIB": ""}) == Settings("static", None)


def test_simulated_cards_and_hosts_without_are_left_alone(able: Able) -> None:
    for each in (Inventory(GPUS, "simulated", "535.1"), Inventory(), inventory(None, None)):
        assert able().completed(each) is each


def test_a_look_is_made_once_and_again_when_a_card_changes(
    able: Able, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = able()
    looks: list[Inventory] = []
    probed = host.probed

    def counted(report: Inventory) -> Known:
        looks.append(report)
        return probed(report)

    monkeypatch.setattr(host, "probed", counted)
    plain = inventory(driver="535.1")
    assert said_of(host.completed(plain))[Ability.SHIM] == ""
    host.completed(plain)
    assert len(looks) == 1
    host.completed(inventory(Sharing(80000), Sharing(80000, mig=True), driver="535.1"))
    host.completed(inventory(Sharing(80000), Sharing(80000, mig=True), driver="550.1"))
    assert 2 <= len(looks) <= 3, "one may still run when the next is due"


def test_a_switch_takes_effect_without_a_new_look(able: Able, monkeypatch: pytest.MonkeyPatch) -> None:
    host = able()
    assert said_of(host.completed(inventory(driver="535.1")))[Ability.SHIM] == ""
    monkeypatch.setattr(shim_ability, "lacks", lambda env, inventory: "MESOS_GPU_SHIM=off")
    assert said_of(host.completed(inventory(driver="535.1")))[Ability.SHIM] == "MESOS_GPU_SHIM=off"


def test_before_the_first_look_a_card_has_nothing_for_shares(
    able: Able, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = able()

    def broken(report: Inventory) -> Any:
        raise RuntimeError("boom")

    monkeypatch.setattr(host, "probed", broken)
    report = host.completed(inventory())
    assert [gpu.sharing for gpu in report.gpus] == [None, None]
    assert "boom" in caplog.text
    monkeypatch.setattr(abilities, "RETRY_S", 0.0)
    monkeypatch.setattr(host, "probed", broken)
    host.completed(inventory(driver="550.1"))  # fails again, and is due at once
    monkeypatch.setattr(host, "probed", lambda report: Known())
    assert all(gpu.sharing for gpu in host.completed(inventory(driver="550.1")).gpus)


def test_a_driver_that_does_not_answer_is_a_reason(able: Able, monkeypatch: pytest.MonkeyPatch) -> None:
    host = able("misc")

    def silent(self: NvmlCalls, what: str, **arguments: Any) -> Any:
        raise Unavailable("the driver did not answer within 15 s", remedy="see dmesg")

    monkeypatch.setattr(NvmlCalls, "ask", silent)
    assert said_of(host.at_once(inventory()))[Ability.DMEM] == "the driver did not answer within 15 s"


def test_the_doctor_says_what_shares_are_enforced_by(tmp_path: Path) -> None:
    able_by = Sharing(15360, ((Ability.SHIM, ""), (Ability.MIG, "its MIG mode is off")))
    gpus = (replace(GPUS[0], sharing=able_by), replace(GPUS[1], sharing=None))
    findings = list(doctor.shares(Host(tmp_path, Inventory(gpus, "simulated"))))
    assert [(each.level, each.text) for each in findings] == [
        (Level.OK, f"{GPUS[0].id}: shares are enforced by shim: 15360 MiB of each card; not mig (its MIG mode is off)"),
        (Level.WARN, f"{GPUS[1].id}: its memory cannot be shared out"),
    ]  # fmt: skip
    (finding,) = doctor.shares(Host(tmp_path, Inventory((replace(GPUS[0], sharing=able_by),), "simulated")))
    assert finding.text.startswith("shares are enforced by shim"), "one text for all cards names none"
    assert list(doctor.shares(Host(tmp_path, Inventory()))) == []


def test_words_name_each_reason() -> None:
    assert (
        words_of(Sharing(1, ((Ability.SHIM, "no driver"),)))
        == "shares cannot be enforced; not shim (no driver)"
    )
