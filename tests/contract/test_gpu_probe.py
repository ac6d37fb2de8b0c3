"""The suite of both probes, and what is particular to each."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.nvml.session import Nvml, load
from mesos_gpu.adapters.nvml.sharing import UNTOLD_RESERVE_MIB
from mesos_gpu.adapters.simulated.use import Holder, lifelike
from mesos_gpu.adapters.simulated_gpus import (
    CAPABILITIES,
    MODELS,
    SimulatedProbe,
    change_gpu,
    simulated_gpus,
    write_inventory,
)
from mesos_gpu.errors import Damaged, Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.gpu_use import UNKNOWN, Span
from mesos_gpu.model.nodes.health import Survey
from mesos_gpu.model.shares.card import Ability, MigInstance, Sharing
from mesos_gpu.policy.gpus.health import HealthSettings, advance, at_first_sight, unread
from tests.doubles.nvml.fake import FakeNvml
from tests.doubles.nvml.mig_tables import MIG_TABLES

A100 = "NVIDIA A100-SXM4-80GB"
GPUS = simulated_gpus(8, A100, seed="x")
#: What is wrong with the card 3, as the file and as NVML say it, and what becomes of it.
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], Health]] = {
    "well": ({}, {}, Health.OK),
    "lost": ({"health": "lost"}, {"lost": True}, Health.LOST),
    "needs a reset": ({"health": "sick"}, {"reset_required": True}, Health.SICK),
    "unreadable": ({"health": "unknown"}, {"error": 999}, Health.SUSPECT),
    "slow": ({"clocks_event_reasons": 0x40}, {"clocks": 0x40}, Health.OK),
    "in use": ({"pids": [1]}, {"pids": [1]}, Health.OK),
}


@pytest.fixture(params=["simulated", "nvml"])
def survey(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Survey]]:
    """Survey the GPUs given, with what is wrong with the fourth."""
    opened: list[Nvml] = []

    def simulated(gpus: tuple[Gpu, ...], wrong: str = "well") -> Survey:
        path = tmp_path / "gpus.json"
        write_inventory(path, gpus)
        if WRONG[wrong][0]:
            change_gpu(path, gpus[3].id, **WRONG[wrong][0])
        return SimulatedProbe(path).survey()

    def nvml(gpus: tuple[Gpu, ...], wrong: str = "well") -> Survey:
        opened.append(Nvml(FakeNvml(gpus, {"cards": {"3": WRONG[wrong][1]}})))
        opened[-1].open()
        return opened[-1].survey()

    yield simulated if request.param == "simulated" else nvml
    for each in opened:
        each.close()


def read(fake: FakeNvml) -> Survey:
    """In a session of its own."""
    nvml = Nvml(fake)
    nvml.open()
    try:
        return nvml.survey()
    finally:
        nvml.close()
        assert fake.open == 0


def test_gpu_probe_reports_the_cards(survey: Callable[..., Survey]) -> None:
    report = survey(GPUS)
    want = [(g.id, A100, 81920, n, g.pci_bus_id, g.numa_node) for n, g in enumerate(GPUS)]
    gpus = [reading.gpu for reading in report.readings]
    assert [(g.id, g.model, g.memory_mib, g.minor, g.pci_bus_id, g.numa_node) for g in gpus] == want
    assert {link.kind for link in gpus[0].links if link.peer == gpus[1].id} == {"NV4"}
    assert report.driver_version
    assert report.cuda_version == "12.2"


def test_gpu_probe_without_gpus_is_no_error(survey: Callable[..., Survey]) -> None:
    assert survey(()).readings == ()


@pytest.mark.parametrize("wrong", WRONG)
def test_gpu_probe_error_of_a_card_does_not_touch_its_neighbours(
    survey: Callable[..., Survey], wrong: str
) -> None:
    report = survey(GPUS, wrong)
    gpus = at_first_sight(report, 1.0).gpus
    assert [gpu.health for gpu in gpus] == [WRONG[wrong][2] if n == 3 else Health.OK for n in range(8)]
    assert bool(gpus[3].reason) == (WRONG[wrong][2] is not Health.OK)
    assert gpus[3].warnings == (("slowed down by heat",) if wrong == "slow" else ())
    assert report.readings[3].pids == ((1,) if wrong == "in use" else None)


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path, gpu = tmp_path / "g.json", GPUS[0]
    write_inventory(path, [gpu])
    probe = SimulatedProbe(path)
    assert probe.changed(), "it was never read"
    assert probe.survey() == probe.survey()
    assert not probe.changed()
    write_inventory(path, [replace(gpu, health=Health.SICK, reason="XID 79")])
    assert probe.changed()
    assert probe.survey().readings[0].reset_required == "XID 79"


def test_a_files_xids_come_once_for_each_time_it_is_written(tmp_path: Path) -> None:
    path, gpu = tmp_path / "g.json", GPUS[0]
    write_inventory(path, [gpu])
    probe = SimulatedProbe(path)
    xids_read = []
    for xids in ([31, 62], None, [62]):
        change_gpu(path, gpu.id, xids=xids)
        xids_read += [probe.survey().readings[0].xids, probe.survey().readings[0].xids]
    assert xids_read == [(31, 62), (), (), (), (62,), ()]


def test_a_reset_takes_the_fault_out_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    write_inventory(path, [replace(GPUS[0], health=Health.SICK, reason="XID 79"), GPUS[1]])
    change_gpu(path, GPUS[0].id, xids=[79], hang=True, pids=[1])
    probe = SimulatedProbe(path)
    assert probe.survey().readings[0].unreadable == "it does not answer"
    assert probe.reset(GPUS[0].id) == ""
    first, second = probe.survey().readings
    assert first == replace(second, gpu=first.gpu)
    assert probe.reset(GpuId("GPU-none")) == f"{path} has no GPU-none"
    path.write_text("{")
    assert "Expecting property name" in probe.reset(GPUS[0].id)


def test_the_file_holds_nothing_of_the_monitors(tmp_path: Path) -> None:
    write_inventory(tmp_path / "g.json", [replace(GPUS[0], since=7.0, warnings=("slow",))])
    (entry,) = json.loads((tmp_path / "g.json").read_text())["gpus"]
    assert not {"since", "warnings", "history"} & set(entry)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Expecting property name"),
        ("[]", 'must be an object with a list "gpus"'),
        ('{"gpus": [{"uuid": "GPU-1"}]}', "gpus[0]: model must be of type str, got None"),
        (
            '{"gpus": [{"health": "fine"}]}',
            "gpus[0]: health must be one of ok, sick, lost, unknown, got 'fine'",
        ),
        ('{"gpus": [{"colour": 1}]}', "gpus[0]: unknown field 'colour'"),
        ('{"gpus": [{"xids": 79}]}', "gpus[0]: xids must be of type list, got 79"),
        ('{"gpus": [{"pids": ["x"]}]}', "gpus[0]: "),
        ('{"gpus": [7]}', "gpus[0]: a GPU must be a JSON object, got 7"),
        ('{"gpus": [], "driver_version": 535}', "driver_version must be a string, got 535"),
        ('{"gpus": [{"sharing": {"abilities": {"shin": ""}}}]}', "gpus[0]: sharing: unknown ability 'shin'"),
        ('{"gpus": [{"sharing": {"memory": 1}}]}', "gpus[0]: sharing: unknown field 'memory'"),
    ],
)
def test_a_bad_file_names_file_field_and_value(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(Damaged) as error:
        SimulatedProbe(path).survey()
    assert str(path) in error.value.what
    assert says in error.value.what


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"health": "fine"}, "gpus[0]: health must be one of ok, sick, lost, unknown, got 'fine'"),
        ({"sharing": 7}, "gpus[0]: sharing must be a JSON object, got 7"),
        (
            {"sharing": {"memory_mib": 10}},
            "gpus[0]: sharing.memory_mib is 10, more than the card's 9 MiB",
        ),
    ],
)
def test_wrong_field_of_one_card_leaves_the_other_cards(
    tmp_path: Path, wrong: dict[str, object], says: str
) -> None:
    path = tmp_path / "g.json"
    cards = [{"uuid": f"GPU-{i}", "model": "T4", "memory_mib": 9, "minor": i} for i in range(2)]
    path.write_text(json.dumps({"gpus": [{**cards[0], **wrong}, cards[1]]}))
    first, second = SimulatedProbe(path).survey().readings
    assert (first.gpu.id, first.misdescribed, second.misdescribed) == ("GPU-0", says, "")
    seen = advance(unread(first.gpu), first, 1.0, HealthSettings())
    assert (seen.gpu.health, seen.gpu.reason) == (Health.UNKNOWN, says)


def test_two_cards_of_one_name_are_refused(tmp_path: Path) -> None:
    (gpu,) = simulated_gpus(1, A100, seed="x")
    write_inventory(tmp_path / "g.json", [gpu, gpu])
    with pytest.raises(Damaged, match="twice"):
        SimulatedProbe(tmp_path / "g.json").survey()


def test_a_missing_inventory_file_is_reported_as_an_error(tmp_path: Path) -> None:
    probe = SimulatedProbe(tmp_path / "none.json")
    with pytest.raises(Damaged, match="No such file"):
        probe.survey()


@pytest.mark.parametrize("broken", ["library", "driver"])
def test_a_host_without_driver_is_a_cpu_host(broken: str) -> None:
    fake = FakeNvml((), {"broken": broken})
    assert read(fake).source == "none"
    assert read(fake).note.startswith("this is a CPU host: ")


def test_a_driver_that_is_loaded_later_is_found() -> None:
    state = {"broken": "driver"}
    nvml = Nvml(FakeNvml(GPUS, state))
    nvml.open()
    assert nvml.survey().readings == ()
    state.clear()
    nvml.open()
    assert len(nvml.survey().readings) == 8
    nvml.close()


def test_gpu_probe_works_on_this_host_without_a_gpu() -> None:
    nvml = Nvml(load())
    nvml.open()
    assert isinstance(nvml.survey().readings, tuple)
    nvml.close()


def test_gpu_probe_without_the_python_package_sees_a_cpu_host() -> None:
    nvml = Nvml(None)
    nvml.open()
    assert nvml.survey().note == "this is a CPU host: the Python package nvidia-ml-py is not installed"
    nvml.close()


def test_nvml_that_fails_as_a_whole_is_an_error() -> None:
    with pytest.raises(Unavailable, match="NVML failed"):
        read(FakeNvml((), {"broken": "unknown"}))


def test_a_card_that_cannot_be_named_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    report = read(FakeNvml(GPUS[:2], {"cards": {"0": {"nameless": True}}}))
    assert [reading.gpu.id for reading in report.readings] == [GPUS[1].id]
    assert "GPU 0 of this host cannot be identified" in caplog.text


def test_gpu_probe_takes_unsupported_queries_for_no_sickness() -> None:
    report = read(FakeNvml(GPUS, {"unsupported": True, "cards": {"0": {"memory": "n/a"}}}))
    gpus = at_first_sight(report, 1.0).gpus
    assert {(gpu.health, gpu.numa_node, gpu.warnings) for gpu in gpus} == {(Health.OK, None, ())}
    assert gpus[0].memory_mib > 100, "the host's: it has none of its own"
    assert {reading.pids for reading in report.readings} == {None}


@pytest.mark.parametrize(
    ("card", "field", "value"),
    [
        ({"recovery": 2}, "recovery_action", 2),
        ({"rows": [5, 0, 0, 0]}, "remapped_rows_pending", False),
        ({"rows": [0, 1, 1, 0]}, "remapped_rows_pending", True),
        ({"rows": [0, 1, 0, 1]}, "row_remapping_failed", True),
        ({"retired": 1}, "retired_pages_pending", True),
        ({"ecc": 3}, "uncorrectable_ecc", 3),
        ({"pids": [7, 5]}, "pids", (5, 7)),
        ({"pids": [7, 5]}, "process_mib", None),  # without rights, and in MIG mode, it does not say how much
        ({"pids": []}, "process_mib", ()),
        ({"pids": {7: 3 << 20, 5: (512 << 20) + 1}}, "process_mib", ((5, 513), (7, 3))),
        ({"pids": {7: 3 << 20, 5: (1 << 64) - 1}}, "process_mib", ((7, 3),)),
        ({"pids": {7: None}}, "pids", (7,)),
        ({"clocks": 0x80}, "clocks_event_reasons", 0x80),
        ({"reset_required": True}, "reset_required", "the driver says that it needs a reset"),
        ({"error": 999}, "unreadable", "Unknown Error"),
    ],
)
def test_gpu_probe_reads_what_nvml_says(card: dict[str, Any], field: str, value: object) -> None:
    reading = read(FakeNvml(GPUS, {"cards": {"0": card}})).readings[0]
    assert getattr(reading, field) == value


def test_the_compute_capability_is_read_by_both_and_may_be_unknown(
    survey: Callable[..., Survey],
) -> None:
    known = ("8.0", "10.3", None)
    gpus = tuple(
        replace(gpu, links=(), compute_capability=one) for gpu, one in zip(GPUS, known, strict=False)
    )
    capabilities = [reading.gpu.compute_capability for reading in survey(gpus).readings]
    assert capabilities == list(known)
    assert MODELS.keys() == CAPABILITIES.keys()


def test_a_simulated_card_can_be_shared_unless_its_file_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    write_inventory(path, GPUS)
    told = Sharing(40000, ((Ability.SHIM, ""), (Ability.MIG, "its mode is off")), sm_count=108)
    change_gpu(path, GPUS[1].id, sharing={"memory_mib": 70000})
    change_gpu(path, GPUS[2].id, sharing={"abilities": {"mps2": "", "shim": "switched off"}})
    write_inventory(tmp_path / "h.json", [replace(GPUS[3], sharing=told)])
    value = json.loads(path.read_text())
    value["gpus"][4]["sharing"] = None
    path.write_text(json.dumps(value))
    shim = ((Ability.SHIM, ""),)
    sharings = [reading.gpu.sharing for reading in SimulatedProbe(path).survey().readings]
    assert sharings[:5] == [
        Sharing(81920, shim),
        Sharing(70000, shim),
        Sharing(81920, ((Ability.MPS2, ""), (Ability.SHIM, "switched off"))),
        Sharing(81920, shim),
        None,
    ]
    assert SimulatedProbe(tmp_path / "h.json").survey().readings[0].gpu.sharing == told


def test_gpu_probes_tell_the_sharing_of_a_card(survey: Callable[..., Survey]) -> None:
    for reading in survey(GPUS).readings:
        assert reading.gpu.sharing is not None
        assert 0 < reading.gpu.sharing.memory_mib <= reading.gpu.memory_mib
        assert not reading.gpu.sharing.mig


def sharing_of(card: dict[str, Any], model: str = A100, **state: Any) -> Sharing:
    """What NVML says of one card for shares."""
    gpu = replace(simulated_gpus(1, model, seed="x", memory_mib=81559)[0], compute_capability="9.0")
    (reading,) = read(FakeNvml([gpu], {"cards": {"0": card}, **state})).readings
    assert not reading.unreadable
    assert reading.gpu.sharing is not None
    return reading.gpu.sharing


@pytest.mark.parametrize(
    ("card", "memory_mib", "sm_count"),
    [
        ({"reserved_mib": 600, "cores": 16896}, 80959, 132),
        ({"reserved_mib": 600.5}, 80958, None),
        ({"cores": 16896}, 81559 - UNTOLD_RESERVE_MIB, 132),
        ({"reserved_mib": 0, "cores": 100}, 81559, None),
        ({"reserved_mib": 90000}, 0, None),
    ],
)
def test_gpu_sharing_leaves_out_memory_of_the_driver(
    card: dict[str, Any], memory_mib: int, sm_count: int | None
) -> None:
    assert sharing_of(card) == Sharing(memory_mib, sm_count=sm_count)


def test_a_card_whose_memory_is_the_hosts_cannot_be_shared() -> None:
    first, second = read(FakeNvml(GPUS[:2], {"cards": {"0": {"memory": "n/a"}}})).readings
    assert first.gpu.sharing is None
    assert second.gpu.sharing is not None


H100 = "NVIDIA H100 80GB HBM3"
#: Number of the profile and where it begins: 3g.40gb at 0, 1g.10gb at 6.
DIVIDED: dict[str, Any] = {"mode": 1, "made": [[1, 9, 0, [0]], [13, 19, 6, [0]]]}


def test_instances_and_profiles_of_a_card_in_mig_mode_are_read() -> None:
    sharing = sharing_of({"reserved_mib": 559, "mig": DIVIDED}, H100)
    assert sharing.mig
    assert (sharing.memory_mib, sharing.sm_count) == (81000, 132)
    assert sharing.instances == (
        MigInstance("MIG-0-9-0-0", "3g.40gb", 40448, 60, 1, 0, 428, 500, 0, 4),
        MigInstance("MIG-0-19-6-0", "1g.10gb", 9984, 16, 13, 0, 142, 125, 6, 1),
    )
    assert set(sharing.profiles) == set(MIG_TABLES[H100].profiles())


def test_a_card_whose_mig_mode_is_off_has_no_instances() -> None:
    sharing = sharing_of({"reserved_mib": 559, "mig": {"mode": 0, "made": []}}, H100)
    assert sharing == Sharing(81000)


def test_instances_whose_memory_is_shared_are_for_nobody_and_their_place_is_taken() -> None:
    mig = {"mode": 1, "made": [[1, 9, 0, [0, 1]], [2, 14, 4, []]]}  # two compute instances; none yet
    sharing = sharing_of({"reserved_mib": 0, "mig": mig}, H100)
    assert sharing.instances == ()
    assert {each.name: each.starts for each in sharing.profiles} == {
        "1g.10gb": (6,), "1g.20gb": (6,), "2g.20gb": (), "3g.40gb": (), "4g.40gb": (), "7g.80gb": (),
    }  # fmt: skip


def test_gpu_probe_without_root_sees_instances_without_places() -> None:
    sharing = sharing_of({"reserved_mib": 559, "mig": DIVIDED}, H100, user=True)
    assert sharing.profiles == ()
    assert sharing.instances == (
        MigInstance("MIG-0-9-0-0", "3g.40gb", 40448, 60, 1, 0, 428, 499, 0, 0),
        MigInstance("MIG-0-19-6-0", "1g.10gb", 9984, 16, 13, 0, 142, 123, 0, 0),
    )


def test_a_driver_that_answers_nothing_of_shares_leaves_the_card_well() -> None:
    (reading,) = read(FakeNvml(GPUS[:1], {"unsupported": True})).readings
    assert reading.gpu.sharing == Sharing(81920 - UNTOLD_RESERVE_MIB)
    assert at_first_sight(Survey((reading,)), 1.0).gpus[0].health is Health.OK


def test_simulated_gpus_are_distinct_and_repeatable() -> None:
    one, two = simulated_gpus(4, A100, seed="a"), simulated_gpus(4, A100, seed="b")
    assert one == simulated_gpus(4, A100, seed="a")
    assert len({g.id for g in (*one, *two)}) == 8
    assert all(m > 0 for m in MODELS.values())
    assert json.dumps(one[0].id).startswith('"GPU-')


def test_gpu_probe_of_a_file_varies_the_use_of_a_held_card(tmp_path: Path) -> None:
    path, now, held = tmp_path / "g.json", [0.0], [Holder("a.1", (GPUS[0].id,))]
    write_inventory(path, GPUS[:2], use=lambda gpu: lifelike(gpu) if gpu == GPUS[0] else None)
    probe = SimulatedProbe(path, lambda: held, lambda: now[0])
    assert [reading.span for reading in probe.survey().readings] == [None, None], "there was no look before"
    seen = []
    for _ in range(18):  # of one wave
        now[0] += 10
        first, second = probe.survey().readings
        assert (second.span, second.meters) == (None, UNKNOWN)
        assert first.meters.memory_used_mib == 81920 * 3 // 4
        assert first.meters.power_mw is not None
        assert first.span is not None
        assert first.span.seen_ms == 10_000
        seen.append((first.span.busy_ms / 100, first.meters.gpu_pct, first.meters.power_mw))
    busy, told, power = zip(*seen, strict=True)
    assert busy == told
    assert 55 <= min(busy) < 60 < 92 < max(busy) <= 97
    assert busy.index(max(busy)) == power.index(max(power))
    held.clear()
    now[0] += 10
    first = probe.survey().readings[0]
    assert (first.span, first.meters.power_mw, first.meters.memory_used_mib) == (Span(10_000, 0), 62_000, 0)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ({"held": [1, 2]}, "gpus[1]: use.held: it must be an object; allowed are busy_pct,"),
        ({"held": {"power": 1, "held": {}}}, "gpus[1]: use.held: unknown field 'held'"),
        ({"busy_pct": [1, 2, 3]}, "gpus[1]: use.busy_pct must be percent from 0 to 100, got [1, 2, 3]"),
        ({"power_mw": [0, "1"]}, "gpus[1]: use.power_mw must be a whole number from 0, got [0, '1']"),
        ({"power_mw": [-5, -5]}, "gpus[1]: use.power_mw must be a whole number from 0, got -5"),
        ({"watts": 1}, "gpus[1]: use: unknown field 'watts'; allowed are held, scripts, busy_pct,"),
    ],
)
def test_a_use_that_cannot_be_makes_its_card_unknown_and_names_the_field(
    tmp_path: Path, use: dict[str, Any], words: str
) -> None:
    path = tmp_path / "g.json"
    write_inventory(path, GPUS[:2])
    change_gpu(path, GPUS[1].id, use=use)
    first, second = SimulatedProbe(path).survey().readings
    assert (first.misdescribed, words in second.misdescribed) == ("", True)
