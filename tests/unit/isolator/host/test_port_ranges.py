"""Ports that agents give to tasks: parsing, agents' checkpoints, and grants of tasks."""

from pathlib import Path

import pytest

from isolator.host.port_ranges import (
    EVERY_PORT,
    PortGrant,
    common,
    ephemeral,
    grant_of,
    merged,
    of_agent,
    of_task,
    parse,
    text_of,
    without,
)
from mesos_gpu.errors import BadConfiguration, Unavailable

#: As Mesos 1.11 wrote it for --resources=disk:10000;cpus:32;mem:131072;ports:[9000-9019,14000-14249];gpus:4.
CHECKPOINT = bytes.fromhex(
    "e40000000a0a3132372e302e302e31311a160a046469736b10001a09090000000000"
    "88c34032012a1a160a046370757310001a0909000000000000404032012a1a150a03"
    "6d656d10001a0909000000000000004132012a1a1e0a05706f7274731001"
    "22100a0608a84610bb460a0608b06d10a96f32012a1a160a046770757310001a0909"
    "000000000000104032012a2a260a096770755f6d6f64656c10032a170a154e564944"
    "49412d413130302d53584d342d3830474232290a2731303337383463642d64633961"
    "2d346136342d396239342d6138366666343131616536322d53303801"
    "40e4c301"
)
TASK = {
    "resources": [
        {"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}},
        {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 14003, "end": 14003}]}},
        {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 14004, "end": 14005}]}},
    ]
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The work_dir of an agent, with its checkpoint."""
    directory = tmp_path / "meta/slaves/S0"
    directory.mkdir(parents=True)
    (directory / "slave.info").write_bytes(CHECKPOINT)
    return tmp_path


def sandbox(work: Path) -> str:
    return f"{work}/slaves/S0/frameworks/F/executors/E/runs/R"


def test_ranges_are_read_and_written() -> None:
    assert parse("31000-32000, 9000 9001-9002,9001") == ((9000, 9002), (31000, 32000))
    assert text_of(((9000, 9002), (31000, 31000))) == "9000-9002,31000"
    assert merged([]) == parse("") == ()


@pytest.mark.parametrize("text", ["0", "65536", "1-", "-1", "a", "5-4", "1-2-3", "१"])
def test_parse_names_the_word_that_is_not_a_range(text: str) -> None:
    with pytest.raises(BadConfiguration, match="MESOS_GPU_TASK_PORTS is ") as raised:
        grant_of({"MESOS_GPU_TASK_PORTS": text}, "/", {})
    assert "9000-9019,31000-32000" in raised.value.remedy


def test_ranges_have_an_intersection_and_a_difference() -> None:
    assert common([(1, 10), (20, 30)], [(5, 25)]) == ((5, 10), (20, 25))
    assert common([(1, 4)], [(5, 9)]) == ()
    assert without([(1, 10)], [(3, 4), (6, 20)]) == ((1, 2), (5, 5))


def test_the_ephemeral_range_is_without_what_the_kernel_keeps() -> None:
    """The texts are those of ip_local_port_range and ip_local_reserved_ports."""
    assert ephemeral("32768\t60999\n", "31000-32999,40000\n") == ((33000, 39999), (40001, 60999))
    assert ephemeral("32768\t60999\n", "\n") == ((32768, 60999),)


def test_the_agents_checkpoint_says_its_ports(work: Path) -> None:
    assert of_agent(str(work), "S0") == ((9000, 9019), (14000, 14249))


def test_a_task_gets_its_own_of_them(work: Path) -> None:
    assert of_task(TASK) == ((14003, 14005),)
    grant = grant_of({"MESOS_GPU_TASK_PORTS": "15000"}, sandbox(work), TASK)
    assert grant == PortGrant(((9000, 9019), (14000, 14249), (15000, 15000)), ((14003, 14005),))
    assert [port for port in (0, 8999, 9000, 14002, 14003, 14005, 14006, 15000, 40000) if grant.allows(port)] == [
        0, 8999, 14003, 14005, 40000,
    ]  # fmt: skip
    assert grant.denied_port() == 9000
    assert PortGrant(((5, 6),), ((4, 6),)).denied_port() is None


def test_damage_of_the_checkpoint_is_seen_at_every_byte(work: Path) -> None:
    file = work / "meta/slaves/S0/slave.info"
    for end in range(len(CHECKPOINT)):
        file.write_bytes(CHECKPOINT[:end])
        with pytest.raises(ValueError, match="is not a checkpoint"):
            of_agent(str(work), "S0")
    for message in (b"\x1a\x05\x0a", b"\x80", b"\x1a\x80", b"\x18\x01"):
        file.write_bytes(len(message).to_bytes(4, "little") + message)
        with pytest.raises(Unavailable, match="the agent's range of ports is unknown"):
            grant_of({}, sandbox(work), TASK)


def test_a_range_that_is_unknown_fails_closed(tmp_path: Path) -> None:
    for place in (str(tmp_path), f"{tmp_path}/slaves/S0/x"):
        with pytest.raises(Unavailable, match="the agent's range of ports is unknown") as raised:
            grant_of({}, place, TASK)
        assert "set MESOS_GPU_TASK_PORTS" in raised.value.remedy
    assert grant_of({"MESOS_GPU_TASK_PORTS": "14000-14249"}, str(tmp_path), TASK).reserved == (
        (14000, 14249),
    )
    assert grant_of({"MESOS_GPU_CONTROL_PORTS": "off"}, str(tmp_path), TASK) == EVERY_PORT
