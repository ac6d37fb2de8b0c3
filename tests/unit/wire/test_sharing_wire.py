"""Sharing abilities of a card in a monitor's report."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.shares.card import Ability, MigInstance, MigProfile, Sharing
from mesos_gpu.wire.mesos import report
from mesos_gpu.wire.mesos.sharing import sharing_from_json, sharing_to_json

INSTANCE = MigInstance("MIG-1", "1g.10gb", 9728, 14, 7, 0, 142, 125, 6, 1)
PROFILE = MigProfile("1g.10gb", 19, 9728, 142, 125, (0, 1, 2, 3, 4, 5, 6), 1)
SHARING = Sharing(
    80538,
    ((Ability.MIG, "its mode is off"), (Ability.MPS2, ""), (Ability.SHIM, "")),
    sm_count=132,
    mig=True,
    instances=(INSTANCE, replace(INSTANCE, uuid="MIG-2", gpu_instance=8)),
    profiles=(PROFILE,),
)
GPU = Gpu(GpuId("GPU-1"), "NVIDIA H100 80GB HBM3", 81559, 0, "0:1")


def reported(gpu: Gpu) -> dict[str, Any]:
    """Read a report of one card as plain JSON."""
    value: dict[str, Any] = json.loads(report.encode(Inventory((gpu,))))
    return value


@pytest.mark.parametrize("sharing", [SHARING, Sharing(1), Sharing(1, mps_clients=48), None])
def test_card_sharing_comes_back_in_a_report(sharing: Sharing | None) -> None:
    inventory = Inventory((replace(GPU, sharing=sharing),))
    assert report.decode(report.encode(inventory)) == inventory


def test_card_sharing_of_an_older_monitor_is_absent() -> None:
    value = reported(replace(GPU, sharing=SHARING))
    del value["gpus"][0]["sharing"]
    assert report.decode(json.dumps(value).encode()).gpus == (GPU,)


def test_card_sharing_is_omitted_for_cards_without_shares() -> None:
    assert "sharing" not in reported(GPU)["gpus"][0]


def test_card_sharing_fields_of_a_newer_monitor_are_ignored() -> None:
    value = reported(replace(GPU, sharing=SHARING))
    value["gpus"][0]["sharing"]["abilities"]["quantum"] = ""
    value["gpus"][0]["sharing"]["since"] = 7
    assert report.decode(json.dumps(value).encode()).gpus[0].sharing == SHARING


def test_card_sharing_ability_is_missing_for_the_reported_reason() -> None:
    sharing = sharing_from_json(sharing_to_json(SHARING))
    assert sharing.lacks(Ability.SHIM) == ""
    assert sharing.lacks(Ability.MIG) == "its mode is off"
    assert sharing.lacks(Ability.DMEM) == "not reported"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"memory_mib": -1}, "sharing.memory_mib must be a whole number, 0 or more, got -1"),
        ({"mps_clients": -1}, "sharing.mps_clients must be a whole number, 0 or more, got -1"),
        ({"memory_mib": None}, "sharing.memory_mib must be a whole number, 0 or more, got None"),
        ({"memory_mib": 1.5}, "sharing.memory_mib must be a whole number, 0 or more, got 1.5"),
        ({"sm_count": True}, "sharing.sm_count must be a whole number, 0 or more, got True"),
        ({"mig": "on"}, "sharing.mig must be true or false, got 'on'"),
        ({"abilities": ["shim"]}, "sharing.abilities must map each ability"),
        ({"abilities": {"shim": True}}, "sharing.abilities must map each ability"),
        ({"instances": {}}, "sharing.instances must be a list, got {}"),
        ({"instances": [7]}, "sharing.instances[0] must be a JSON object, got 7"),
        (
            {"profiles": [{"name": "1g", "starts": [-1]}]},
            "sharing.profiles[0].starts must be a list of whole",
        ),
        ({"instances": [{"uuid": 7}]}, "sharing.instances[0].uuid must be a name, got 7"),
    ],
)
def test_card_sharing_field_that_is_wrong_is_named(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as error:
        sharing_from_json({**sharing_to_json(SHARING), **changed})
    assert says in str(error.value)


def test_card_sharing_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="sharing must be a JSON object, got 7"):
        sharing_from_json(7)
