"""MIG instances that a host makes for shares: written down with the claim, made once, removed with the last release."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isolator.devices import facts
from isolator.devices.rules import DriverFacts
from isolator.gpus.ledger import Ledger, Owner
from isolator.gpus.share_claims import CardTrace
from isolator.host.not_started import NotStarted
from isolator.shares import card
from isolator.shares.driver import instances
from isolator.shares.driver.instances import Instance, undo, with_instance
from isolator.shares.enforcing import Enforcing, let_go
from isolator.shares.tenancy import Given, Tenancy
from mesos_gpu.adapters.nvml.mig import MINORS
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.errors import BadConfiguration, Conflict, Unavailable
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.shares.card import MigInstance, Sharing
from mesos_gpu.model.shares.share import Method, Share
from tests.doubles.nvml.mig_tables import MIG_TABLES
from tests.unit.isolator.shares.near_nvml import NearCalls

H100 = "NVIDIA H100 80GB HBM3"
GPU = replace(
    simulated_gpus(1, H100, seed="made")[0],
    sharing=Sharing(80000, mig=True, profiles=MIG_TABLES[H100].profiles()),
)
SHARE = Share(142, 9984, 9984, Method.MIG, instance="1g.10gb@6")
DYNAMIC = {"MESOS_GPU_MIG": "dynamic"}


class Host:
    """A ledger, and a driver whose state is in a file; what asks it is the executor's own way."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No instances are there."""
        self._state = path / "nvml.json"
        self._state.write_text(json.dumps({"cards": {"0": {"mig": {"mode": 1, "made": []}}}}))
        self.ledger = Ledger(path / "ledger.sqlite")
        self.owner = Owner.of(os.getpid())
        calls = NearCalls([GPU], self._state)
        monkeypatch.setattr(instances, "calls_of", lambda env: calls)

    def made(self) -> list[Any]:
        """Profile and start of what is there."""
        rows = json.loads(self._state.read_text())["cards"]["0"]["mig"]["made"]
        return [(profile, start) for _, profile, start, _ in rows]

    def say(self, **mig: Any) -> None:
        """Change the card's state."""
        state = json.loads(self._state.read_text())
        state["cards"]["0"]["mig"].update(mig)
        self._state.write_text(json.dumps(state))

    def enforcing(self, share: Share = SHARE, task: str = "t1", *, simulated: bool = False) -> Enforcing:
        """Make what enforces the share of a task, with its claim written."""
        tenancy = Tenancy(task, f"c-{task}", (GPU,), share, self.ledger.directory, DYNAMIC, simulated)
        enforcing = Enforcing(tenancy, self.ledger, 1000)
        enforcing.see()
        self.ledger.claim(task, [GPU.id], self.owner, container=f"c-{task}", share=enforcing.claim())
        return enforcing

    def let_go(self, task: str = "t1") -> None:
        """Release its claim."""
        let_go(self.ledger, task, self.owner, f"c-{task}", [GPU.id])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host that makes instances."""
    return Host(tmp_path, monkeypatch)


def test_an_instance_is_on_record_before_it_is_made_and_gone_with_its_share(host: Host) -> None:
    enforcing = host.enforcing()
    assert host.ledger.cards() == (CardTrace(GPU.id, "mig", "1g.10gb@6"),)
    assert host.made() == []
    made = enforcing.divide()
    assert (made.profile, made.start, host.made()) == ("1g.10gb", 6, [(19, 6)])
    given = enforcing.make((), None)
    assert given.env == {"CUDA_VISIBLE_DEVICES": made.uuid, "NVIDIA_VISIBLE_DEVICES": made.uuid}
    host.let_go()
    assert (host.made(), host.ledger.cards()) == ([], ())


def test_a_neighbours_instance_stays(host: Host) -> None:
    other = replace(SHARE, instance="3g.40gb@0", compute_milli=428, memory_mib=40448, memory_max_mib=40448)
    host.enforcing().divide()
    host.enforcing(other, "t2").divide()
    host.let_go()
    assert host.made() == [(9, 0)]
    assert [row.what for row in host.ledger.cards()] == ["3g.40gb@0"]


def test_instance_of_a_dead_executor_is_removed_beside_a_neighbour(host: Host) -> None:
    host.enforcing().divide()
    host.enforcing(replace(SHARE, instance="1g.10gb@5"), "t2").divide()
    host.ledger.release("t1", host.owner)  # and it died before it removed its instance
    card.tend(host.ledger)
    assert (host.made(), [row.what for row in host.ledger.cards()]) == ([(19, 5)], ["1g.10gb@5"])
    host.ledger.release("t2", host.owner)
    card.tend(host.ledger)
    assert (host.made(), host.ledger.cards()) == ([], ())


def test_instance_place_taken_by_an_operator_sends_the_task_elsewhere(host: Host) -> None:
    host.say(made=[[1, 9, 4, [0]]])
    with pytest.raises(NotStarted, match="another MIG instance") as error:
        host.enforcing().divide()
    assert error.value.outcome is not None
    assert error.value.outcome.refused_gpus == (GPU.id,)


def test_an_instance_in_use_stays_on_record_until_it_can_go(host: Host) -> None:
    made = host.enforcing().divide()
    host.say(busy=[made.gpu_instance])
    with pytest.raises(Conflict, match=r"a process uses 1g.10gb@6"):
        host.let_go()
    assert host.made() == [(19, 6)]
    host.say(busy=[])
    card.tend(host.ledger)
    assert (host.made(), host.ledger.cards()) == ([], ())


def test_an_instance_that_was_there_is_neither_made_nor_removed(host: Host) -> None:
    host.say(made=[[1, 9, 4, [0]]])
    static = replace(SHARE, instance="MIG-0-9-4-0")
    enforcing = host.enforcing(static)
    assert host.ledger.cards() == ()
    assert enforcing.make((), None) == Given()
    host.let_go()
    assert host.made() == [(9, 4)]


def test_host_without_permission_makes_no_instances(tmp_path: Path) -> None:
    tenancy = Tenancy("t", "c", (GPU,), SHARE, tmp_path, {})
    assert Instance().lacks(tenancy) == "MESOS_GPU_MIG is not dynamic here: no instances are made"
    assert Instance().lacks(replace(tenancy, own=DYNAMIC)) == ""
    assert Instance().lacks(replace(tenancy, share=replace(SHARE, instance="MIG-1"))) == ""
    with pytest.raises(Conflict, match="cannot be changed while it is used"):
        Instance().resize(tenancy, Ledger(tmp_path / "l"), SHARE)


def test_simulated_cards_have_instances_that_no_driver_makes(host: Host) -> None:
    enforcing = host.enforcing(simulated=True)
    made = enforcing.divide()
    assert (made.profile, made.start, made.memory_mib) == ("1g.10gb", 6, 9984)
    host.let_go()
    assert (host.made(), host.ledger.cards()) == ([], ())
    with pytest.raises(NotStarted, match=r"has no place 1g.10gb@7"):
        host.enforcing(replace(SHARE, instance="1g.10gb@7"), simulated=True).divide()


def test_the_nodes_of_a_made_instance_are_those_of_its_capabilities(tmp_path: Path) -> None:
    path = tmp_path / MINORS
    path.parent.mkdir(parents=True)
    path.write_text("gpu0/gi13/access 120\ngpu0/gi13/ci0/access 121\n")
    made = MigInstance("MIG-1", "1g.10gb", 9984, 16, 13, 0, 142, 125, 6, 1)
    inventory = Inventory((replace(GPU, health=Health.OK),), "nvml", "550.1")
    driver = DriverFacts({"nvidia": 195, "nvidia-caps": 510})
    with pytest.raises(Unavailable, match=r"the MIG instance 1g.10gb@6 is not on this host now"):
        facts.granted_devices(driver, {GPU.id: 0}, SHARE, inventory, tmp_path)
    inventory = with_instance(inventory, GPU.id, made)
    devices = facts.granted_devices(driver, {GPU.id: 0}, SHARE, inventory, tmp_path)
    assert {device.minor for device in devices if device.major == 510} == {120, 121}
    assert devices == facts.granted_devices(
        driver, {GPU.id: 0}, replace(SHARE, instance="MIG-1"), inventory, tmp_path
    )


def test_a_row_that_names_no_instance_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="MIG instance 'x'"):
        undo(CardTrace(GPU.id, "mig", "x"))
