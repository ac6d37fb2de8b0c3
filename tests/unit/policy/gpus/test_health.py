"""Health of a card: tables of readings, and the way to sick and back."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.health import CardHealth, Reading, Survey
from mesos_gpu.policy.gpus.health import (
    HISTORY,
    HealthSettings,
    Tier,
    advance,
    at_first_sight,
    doubted,
    faults,
    inventory_of,
    noted,
    released,
    tiers_from,
    unknown,
    unread,
)
from mesos_gpu.wire.mesos.health import reading_from_json, reading_to_json, record_from_json, record_to_json

GPU, OTHER = simulated_gpus(2, "Tesla T4", seed="health")
SETTINGS = HealthSettings(recheck_s=60, recheck_most_s=600, peace_s=10_000)
WELL = Reading(GPU)
UNREADABLE = Reading(GPU, unreadable="Unknown Error")
LOST = Reading(GPU, lost=True)
ABSENT = None
FULL = Reading(
    GPU, False, "", "", (), 0, 0, False, False, False, 0, ()
)  # a driver that has every query, and a card that is well


def with_(**facts: Any) -> Reading:
    return Reading(GPU, **facts)


READINGS: dict[str, tuple[Reading | None, Health, str]] = {
    "nothing is supported": (WELL, Health.OK, ""),
    "all is supported and well": (FULL, Health.OK, ""),
    "an application's XID": (with_(xids=(31,)), Health.OK, ""),
    "an XID that asks for a reset": (with_(xids=(62,)), Health.SICK, "XID 62"),
    "109 is no application's": (with_(xids=(109,)), Health.SICK, "XID 109"),
    "63 takes nothing out": (with_(xids=(63, 94, 32)), Health.OK, ""),
    "an XID that asks for hands": (with_(xids=(54,)), Health.SICK, "XID 54"),
    "off the bus, by XID": (with_(xids=(79,)), Health.LOST, "XID 79"),
    "an XID that nobody knows": (with_(xids=(4711,)), Health.SICK, "XID 4711"),
    "two XIDs": (with_(xids=(13, 62, 62, 48)), Health.SICK, "XID 62; XID 48"),
    "lost": (LOST, Health.LOST, "fallen off the bus"),
    "lost, and some queries fail otherwise": (
        with_(lost=True, unreadable="Unknown Error"), Health.LOST, "fallen off the bus",
    ),
    "absent": (ABSENT, Health.LOST, "it is not present any more"),
    "unreadable once": (UNREADABLE, Health.SUSPECT, "Unknown Error"),
    "reset required": (with_(reset_required="as it says"), Health.SICK, "as it says"),
    "rows pending": (
        with_(remapped_rows_pending=True), Health.SICK, "memory rows wait for a reset to be remapped",
    ),
    "remapping failed": (with_(row_remapping_failed=True), Health.SICK, "remapping of memory rows failed"),
    "pages pending": (
        with_(retired_pages_pending=True), Health.SICK, "memory pages wait for a reset to be retired",
    ),
    "the driver asks for a reset": (
        with_(recovery_action=1), Health.SICK, "the driver asks for a reset of the GPU",
    ),
    "the driver asks for a reboot": (
        with_(recovery_action=2), Health.SICK, "the driver asks for a reboot of the node",
    ),
    "the driver asks for what nobody knows": (
        with_(recovery_action=99), Health.SICK, "the driver asks for recovery action 99",
    ),
    "the driver asks for nothing, and the XID asks for a reset": (
        with_(recovery_action=0, xids=(62,)), Health.SUSPECT, "XID 62",
    ),
    "the driver asks for nothing, and the card is off the bus": (
        with_(recovery_action=0, xids=(79,)), Health.LOST, "XID 79",
    ),
    "all three slowdowns": (with_(clocks_event_reasons=0x8 | 0x40 | 0x80), Health.OK, ""),
    "errors of before we looked": (with_(uncorrectable_ecc=7), Health.OK, ""),
}  # fmt: skip


@pytest.mark.parametrize("seen", [False, True], ids=["at first sight", "while ok"])
def test_health_of_a_card_after_one_reading(seen: bool) -> None:
    before = run([WELL])[-1] if seen else unread(GPU)
    for name, (reading, health, reason) in READINGS.items():
        after = advance(before, reading, 1000.0, SETTINGS)
        assert (after.gpu.health, after.gpu.reason) == (health, reason), name


@pytest.mark.parametrize(
    ("reading", "warnings"),
    [
        (with_(xids=(31, 13, 31)), ("XID 31", "XID 13")),
        (with_(clocks_event_reasons=0x40), ("slowed down by heat",)),
        (with_(clocks_event_reasons=0x88), ("slowed down by the hardware", "slowed down by the power brake")),
        (with_(clocks_event_reasons=0x1 | 0x4 | 0x20), ()),
    ],
)
def test_warnings_are_listed_and_change_no_health(reading: Reading, warnings: tuple[str, ...]) -> None:
    assert run([reading])[-1].gpu.warnings == warnings


def test_slowdown_is_said_while_it_lasts_and_an_xid_for_an_hour() -> None:
    record = run([with_(xids=(31,), clocks_event_reasons=0x40)])[-1]
    record = advance(record, WELL, 1010.0, SETTINGS)
    assert record.gpu.warnings == ("XID 31",)
    assert advance(record, WELL, 1000.0 + 3600, SETTINGS).gpu.warnings == ()


def run(readings: Sequence[Reading | None], *, step_s: float = 10.0, **settings: Any) -> list[CardHealth]:
    """A card's records, a reading each `step_s` from 1000 s on."""
    record, records = unread(GPU), []
    for number, reading in enumerate(readings):
        record = advance(record, reading, 1000.0 + step_s * number, replace(SETTINGS, **settings))
        records.append(record)
    return records


def path(records: Sequence[CardHealth]) -> str:
    return " ".join(record.gpu.health.value for record in records)


PATHS: dict[str, tuple[list[Reading | None], str]] = {
    "unreadable once": (
        [WELL, UNREADABLE, WELL, WELL, WELL],
        "ok suspect suspect suspect ok",
    ),
    "unreadable again and again": (
        [WELL, UNREADABLE, UNREADABLE, UNREADABLE],
        "ok suspect suspect sick",
    ),
    "now and then is again and again": (
        [WELL, UNREADABLE, WELL, UNREADABLE, WELL, WELL, UNREADABLE],
        "ok suspect suspect suspect suspect suspect sick",
    ),
    "a hard fault of a suspect": ([UNREADABLE, with_(xids=(62,))], "suspect sick"),
    "sick, then lost, then there again": (
        [with_(xids=(62,)), LOST, ABSENT, *[WELL] * 9],
        "sick lost lost lost lost lost lost lost suspect suspect suspect ok",
    ),
    "sick and back": (
        [WELL, with_(xids=(62,)), *[WELL] * 9],
        "ok sick sick sick sick sick sick suspect suspect suspect ok",
    ),
    "a fault on the way back": (
        [with_(xids=(62,)), *[WELL] * 6, UNREADABLE, WELL],
        "sick sick sick sick sick sick suspect sick sick",
    ),
    "the fault stays": ([with_(recovery_action=1)] * 20, " ".join(["sick"] * 20)),
    "remapping that failed": (
        [with_(row_remapping_failed=True), *[WELL] * 20],
        " ".join(["sick"] * 21),
    ),
}


def test_readings_lead_along_these_states() -> None:
    assert {name: path(run(readings)) for name, (readings, _) in PATHS.items()} == {
        name: want for name, (_, want) in PATHS.items()
    }


def test_flapping_card_is_out_rechecked_and_back_once_each() -> None:
    record = run([WELL, with_(xids=(62,)), *[WELL] * 30])[-1]
    assert [(t.at, t.old.value, t.new.value, t.reason) for t in record.gpu.history] == [
        (1010.0, "ok", "sick", "XID 62"),
        (1070.0, "sick", "suspect", "no fault for 60 s"),
        (1100.0, "suspect", "ok", "clean readings"),
    ]
    assert (record.gpu.health, record.gpu.reason, record.gpu.since) == (Health.OK, "", 1100.0)


def test_relapse_doubles_the_wait_up_to_a_bound_and_a_long_peace_forgives() -> None:
    record, now, waits = unread(GPU), 1000.0, []
    for relapse in range(6):
        record = advance(record, with_(xids=(62,)), now, SETTINGS)
        fell = now
        while record.gpu.health is not Health.OK:
            now += 10
            record = advance(record, WELL, now, SETTINGS)
        waits.append(record.gpu.history[-2].at - fell)
        now += SETTINGS.peace_s if relapse == 4 else 10
    assert waits == [60, 120, 240, 480, 600, 60]
    assert len(record.gpu.history) == HISTORY


def test_latch_is_ended_by_an_operator_alone_and_then_rechecked() -> None:
    record = run([with_(row_remapping_failed=True), *[WELL] * 9])[-1]
    assert record.latched
    record = released(record, 2000.0, SETTINGS)
    records = []
    for now in range(2010, 2100, 10):
        record = advance(record, WELL, float(now), SETTINGS)
        records.append(record)
    assert path(records) == "sick sick sick sick sick suspect suspect suspect ok"


def test_card_is_not_kept_out_for_long_by_a_clock_set_back() -> None:
    record = advance(unread(GPU), with_(xids=(62,)), 1_000_000.0, SETTINGS)
    record = advance(record, WELL, 1000.0, SETTINGS)
    assert record.recheck_at == 1600.0


def test_stranger_is_dirt_on_a_card_that_is_well_and_nothing_on_one_that_is_not() -> None:
    who = "pid 4711 (python3) of alice"
    record = advance(unread(GPU), WELL, 1000.0, SETTINGS, stranger=who)
    assert (record.gpu.health, record.gpu.reason) == (Health.DIRTY, who)
    record = advance(record, with_(xids=(62,)), 1010.0, SETTINGS, stranger=who)
    assert record.gpu.health is Health.SICK
    record = run([WELL])[-1]
    record = advance(record, WELL, 1010.0, SETTINGS, stranger=who)
    record = advance(record, WELL, 1020.0, SETTINGS, stranger=who)
    record = advance(record, WELL, 1030.0, SETTINGS)
    assert [(t.new.value, t.reason) for t in record.gpu.history] == [
        ("dirty", who), ("ok", "no unclaimed process any more"),
    ]  # fmt: skip


def test_failed_probe_says_nothing_of_the_card() -> None:
    record = run([WELL])[-1]
    gone = unknown(unknown(record, "it hangs", 1010.0), "it hangs", 1020.0)
    assert (gone.gpu.health, gone.gpu.reason, len(gone.gpu.history)) == (Health.UNKNOWN, "it hangs", 1)
    assert advance(gone, WELL, 1030.0, SETTINGS).gpu.health is Health.OK
    sick = unknown(run([with_(row_remapping_failed=True)])[-1], "it hangs", 1010.0)
    assert advance(sick, WELL, 1020.0, SETTINGS).gpu.health is Health.SICK


def test_new_uncorrectable_errors_are_contained_by_cards_that_remap_rows() -> None:
    older = run([with_(uncorrectable_ecc=7), with_(uncorrectable_ecc=8)])[-1]
    assert (older.gpu.health, older.gpu.reason) == (Health.SICK, "an uncorrectable memory error")
    newer = run([replace(FULL, uncorrectable_ecc=7), replace(FULL, uncorrectable_ecc=8)])[-1]
    assert (newer.gpu.health, newer.gpu.warnings) == (Health.OK, ("an uncorrectable memory error",))


def test_card_that_cannot_be_read_keeps_its_facts() -> None:
    blank = Gpu(id=GPU.id, model="unknown", memory_mib=1, minor=1048575, pci_bus_id="")
    record = advance(run([WELL])[-1], Reading(blank, unreadable="Unknown Error"), 1010.0, SETTINGS)
    assert (record.gpu.model, record.gpu.minor) == (GPU.model, GPU.minor)


def test_doubt_is_lifted_by_clean_readings() -> None:
    record = doubted(GPU, "its past was lost", 1000.0)
    assert record.gpu.health is Health.SUSPECT
    records = [record := advance(record, WELL, 1010.0 + n, SETTINGS) for n in range(3)]
    assert path(records) == "suspect suspect ok"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", {}),
        ("13=application", {13: Tier.APPLICATION}),
        (" 13 = reset , 109=replace,79=lost,", {13: Tier.RESET, 109: Tier.REPLACE, 79: Tier.LOST}),
    ],
)
def test_overrides_give_a_tier_to_an_xid(text: str, want: dict[int, Tier]) -> None:
    assert tiers_from(text) == want


@pytest.mark.parametrize("part", ["13", "13=", "x=reset", "13=soft", "-1=reset", "13=reset=replace"])
def test_xid_override_with_a_fault_is_named(part: str) -> None:
    with pytest.raises(BadConfiguration) as error:
        tiers_from(f"31=reset,{part}")
    assert repr(part) in error.value.what


@pytest.mark.parametrize(
    ("tier", "health", "latched"),
    [
        (Tier.APPLICATION, Health.OK, False),
        (Tier.RESET, Health.SICK, False),
        (Tier.REPLACE, Health.SICK, True),
        (Tier.LOST, Health.LOST, False),
    ],
)
@pytest.mark.parametrize("xid", [13, 62, 79, 4711])
def test_xid_override_wins_over_table_and_driver(tier: Tier, health: Health, latched: bool, xid: int) -> None:
    (record,) = run([with_(xids=(xid,), recovery_action=0)], xids={xid: tier})
    assert (record.gpu.health, record.latched) == (health, latched)


def test_xid_table_is_that_of_the_catalogue() -> None:
    """Every XID of the catalogue has its own line; those of the plugin's list that it has otherwise are not taken."""
    ignored = (37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 160, 161)
    resets = (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)
    tiers = {x: faults(with_(xids=(x,)), SETTINGS)[0].tier for x in (*ignored, *resets)}
    assert {tiers[x] for x in ignored} == {Tier.APPLICATION}
    assert {tiers[x] for x in resets} == {Tier.RESET}


def test_inventory_has_gone_cards_under_numbers_of_no_device() -> None:
    """After a reboot the minors are others, and a lost card's old one is its neighbour's."""
    gone = advance(unread(OTHER), ABSENT, 1000.0, SETTINGS)
    here = advance(unread(GPU), Reading(replace(GPU, minor=OTHER.minor)), 1000.0, SETTINGS)
    survey = Survey((Reading(replace(GPU, minor=OTHER.minor)),), "nvml", "535", "12.2")
    inventory = inventory_of(survey, {r.gpu.id: r for r in (gone, here)}, isolation="cgroup2")
    assert {gpu.id: (gpu.minor, gpu.health) for gpu in inventory.gpus} == {
        GPU.id: (OTHER.minor, Health.OK),
        OTHER.id: (1048575, Health.LOST),
    }
    assert (inventory.driver_version, inventory.cuda_version, inventory.isolation) == (
        "535",
        "12.2",
        "cgroup2",
    )


def test_inventory_of_one_look_has_what_is_read() -> None:
    inventory = at_first_sight(Survey((WELL, Reading(OTHER, lost=True)), "nvml"), 5.0)
    assert [gpu.health for gpu in inventory.gpus] == [Health.OK, Health.LOST]


def test_records_and_readings_survive_json() -> None:
    records = run([with_(xids=(31,), uncorrectable_ecc=3), LOST, WELL, with_(row_remapping_failed=True)])
    records.append(replace(noted(records[-1], "reset 1: done", 5.0), resets=("1", "2")))
    for record in (*records, unread(GPU)):
        assert record_from_json(json.loads(json.dumps(record_to_json(record)))) == record
    for reading in (FULL, WELL, with_(xids=(1, 2), pids=(3,), lost=True)):
        assert reading_from_json(json.loads(json.dumps(reading_to_json(reading)))) == reading


def card(name: str, minor: int) -> CardHealth:
    return CardHealth(replace(GPU, id=GpuId(name), minor=minor, health=Health.OK))


@pytest.mark.parametrize(
    ("here", "gone", "minors"),
    [
        ({"a": 0, "b": 1}, {}, {"a": 0, "b": 1}),
        ({"a": 0}, {"b": 1}, {"a": 0, "b": 1}),
        ({"a": 0}, {"b": 0}, {"a": 0, "b": 1048575}),
        ({"a": 0}, {"b": 0, "c": 0}, {"a": 0, "b": 1048575, "c": 1048574}),
        ({"b": 1}, {"a": 0, "c": 0}, {"a": 0, "b": 1, "c": 1048575}),
        ({"a": 1048575}, {"b": 1048575}, {"a": 1048575, "b": 1048574}),
        ({}, {"a": 3, "b": 3}, {"a": 3, "b": 1048575}),
    ],
)
def test_number_of_a_card_that_is_gone_is_no_other_cards(
    here: dict[str, int], gone: dict[str, int], minors: dict[str, int]
) -> None:
    records = {GpuId(name): card(name, minor) for name, minor in {**gone, **here}.items()}
    survey = Survey(tuple(Reading(records[GpuId(name)].gpu) for name in here), "nvml")
    inventory = inventory_of(survey, records)
    assert {str(gpu.id): gpu.minor for gpu in inventory.gpus} == minors


def test_card_that_is_tried_again_is_sick_at_its_next_soft_fault() -> None:
    sick = advance(unread(GPU), with_(xids=(62,)), 0.0, SETTINGS)
    tried = advance(sick, WELL, 60.0, SETTINGS)
    assert (tried.state, tried.bad, tried.clean) == (Health.SUSPECT, SETTINGS.bad_readings - 1, 0)
    again = advance(tried, UNREADABLE, 70.0, SETTINGS)
    assert (again.state, again.why) == (Health.SICK, "Unknown Error (3 times)")


def test_count_of_memory_errors_stays_while_it_is_not_read() -> None:
    counted = advance(unread(GPU), with_(uncorrectable_ecc=3), 0.0, SETTINGS)
    silent = advance(counted, WELL, 1.0, SETTINGS)
    assert (silent.uncorrectable_ecc, silent.gpu.health) == (3, Health.OK)
    assert advance(silent, with_(uncorrectable_ecc=3), 2.0, SETTINGS).gpu.health is Health.OK
    assert advance(silent, with_(uncorrectable_ecc=4), 2.0, SETTINGS).gpu.health is Health.SICK
