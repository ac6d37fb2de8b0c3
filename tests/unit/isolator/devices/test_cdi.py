"""CDI specs: valid for the schema, the right nodes, and the command that writes them."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from isolator.devices import cdi as specs
from isolator.devices.facts import write_inventory
from isolator.devices.rules import DriverFacts
from isolator.gpus.ledger import Claimed, Ledger, Owner
from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration, NotFound
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.policy.gpus.volume_paths import container_environment
from tests.doubles.builders import gpu
from tests.hosts import driver_volume

SCHEMAS = Path(__file__).parents[3] / "data/cdi"
DRIVER = DriverFacts({"nvidia": 195, "nvidia-uvm": 511, "nvidia-caps": 510})
#: The order of NVML's indices is not that of the minor numbers.
CARDS = (specs.Card(GpuId("GPU-b"), 0, 7), specs.Card(GpuId("GPU-a"), 1, 1))
DATA = (
    "share/glvnd/egl_vendor.d/10_nvidia.json",
    "share/nvidia/nvoptix.bin",
    "share/vulkan/icd.d/nvidia_icd.json",
)
VOLUME = specs.Library("/var/lib/mesos/volumes/nvidia_535.183.01", ("nvidia-smi",), DATA)


def check(spec: Any) -> None:
    """Against the published schema; its references are to files beside it."""
    schema = json.loads((SCHEMAS / "schema.json").read_text())
    defs = json.loads((SCHEMAS / "defs.json").read_text())
    text = json.dumps(schema).replace("defs.json#/definitions", "#/definitions")
    jsonschema.Draft7Validator(json.loads(text) | {"definitions": defs["definitions"]}).validate(spec)


def paths(edits: Any) -> list[str]:
    return [node["path"] for node in edits["deviceNodes"]]


def test_schema_refuses_what_is_wrong() -> None:
    spec = specs.host_spec(DRIVER, CARDS, VOLUME)
    spec["devices"][0]["containerEdits"]["deviceNodes"][0]["major"] = "195"
    with pytest.raises(jsonschema.ValidationError):
        check(spec)


def test_a_host_is_described_by_uuid_and_by_nvml_index() -> None:
    spec = specs.host_spec(DRIVER, CARDS, VOLUME)
    check(spec)
    assert (spec["cdiVersion"], spec["kind"]) == ("0.5.0", "nvidia.com/gpu")
    devices = {device["name"]: device["containerEdits"] for device in spec["devices"]}
    assert {name: paths(edits) for name, edits in devices.items()} == {
        "GPU-a": ["/dev/nvidia1"],
        "GPU-b": ["/dev/nvidia7"],
        "0": ["/dev/nvidia7"],
        "1": ["/dev/nvidia1"],
        "all": ["/dev/nvidia1", "/dev/nvidia7"],
    }
    assert devices["GPU-b"]["deviceNodes"] == [
        {"path": "/dev/nvidia7", "type": "c", "major": 195, "minor": 7, "permissions": "rw"}
    ]
    assert paths(spec["containerEdits"]) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


def test_card_that_nvml_does_not_list_has_no_index() -> None:
    spec = specs.host_spec(DRIVER, (*CARDS, specs.Card(GpuId("GPU-c"), None, 2)), VOLUME)
    assert [device["name"] for device in spec["devices"]] == ["GPU-a", "GPU-b", "GPU-c", "0", "1", "all"]


def test_containers_get_the_environment_of_our_own_launches_and_keep_their_path() -> None:
    common = specs.host_spec(DRIVER, CARDS, VOLUME)["containerEdits"]
    ours = container_environment(ImageConfig(), compat=False, data=DATA)
    env = dict(text.split("=", 1) for text in common["env"])
    assert env == {"NVIDIA_VISIBLE_DEVICES": "void", **{k: v for k, v in ours.items() if k != "PATH"}}
    assert env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    assert env["VK_DRIVER_FILES"] == "/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json"
    assert {(mount["hostPath"], mount["containerPath"]) for mount in common["mounts"]} == {
        (VOLUME.path, "/usr/local/nvidia"),
        (f"{VOLUME.path}/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
        (f"{VOLUME.path}/share/nvidia/nvoptix.bin", "/usr/share/nvidia/nvoptix.bin"),
    }
    assert all(mount["options"] == ["ro", "nosuid", "nodev", "rbind"] for mount in common["mounts"])


def test_without_a_driver_volume() -> None:
    spec = specs.host_spec(DRIVER, CARDS, None)
    check(spec)
    assert "mounts" not in spec["containerEdits"]


def test_cdi_spec_shares_devices_added_by_the_operator() -> None:
    driver = DriverFacts(DRIVER.majors, caps=(1,), modeset=True)
    shared = paths(specs.host_spec(driver, CARDS, None)["containerEdits"])
    assert {"/dev/nvidia-modeset", "/dev/nvidia-caps/nvidia-cap1"} < set(shared)


def test_a_host_without_gpus_is_not_described() -> None:
    with pytest.raises(NotFound, match="no GPUs to describe"):
        specs.host_spec(DRIVER, (), VOLUME)


def test_cdi_device_of_a_task_has_only_its_own_cards() -> None:
    spec = specs.task_spec("train-1.2", DRIVER, CARDS, VOLUME)
    check(spec)
    assert spec["kind"] == "mesos-gpu/task"
    assert [(d["name"], paths(d["containerEdits"])) for d in spec["devices"]] == [
        ("train-1.2", ["/dev/nvidia1", "/dev/nvidia7"])
    ]


@pytest.mark.parametrize("task", ["", "a b", "-a", "a-", "ä", "a/b"])
def test_task_that_cdi_cannot_name(task: str) -> None:
    with pytest.raises(BadConfiguration, match="CDI cannot name"):
        specs.task_spec(task, DRIVER, CARDS, None)


# --- the command


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node directory, as a monitor that knows two GPUs leaves it."""
    directory = tmp_path / "node"
    monkeypatch.setenv("MESOS_GPU_NODE_DIR", str(directory))
    monkeypatch.setenv("MESOS_GPU_VOLUMES", str(tmp_path / "volumes"))
    write_inventory(directory, Inventory((gpu("GPU-1"), gpu("GPU-2")), "simulated", "535.183.01"))
    return directory


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["node", "cdi", *arguments])


def names(text: str) -> list[str]:
    spec = json.loads(text)
    check(spec)
    return [device["name"] for device in spec["devices"]]


def test_the_command_describes_this_host(node: Path, tmp_path: Path) -> None:
    result = call()
    assert names(result.stdout) == ["GPU-1", "GPU-2", "1", "2", "all"]
    assert "there is no driver volume" in result.stderr
    driver_volume(tmp_path / "volumes", "535.183.01")
    result = call()
    assert result.stderr == ""
    edits = json.loads(result.stdout)["containerEdits"]
    assert edits["mounts"][0]["hostPath"] == str(tmp_path / "volumes/nvidia_535.183.01")
    assert "/usr/bin/nvidia-smi" in [mount["containerPath"] for mount in edits["mounts"]]


def test_command_writes_a_file_in_one_step(node: Path, tmp_path: Path) -> None:
    target = tmp_path / "cdi/nvidia.yaml"
    target.parent.mkdir()
    target.write_text("old")
    old = os.umask(0o077)
    try:
        result = call("--output", str(target), "--gpu", "GPU-2")
    finally:
        os.umask(old)
    assert (result.exit_code, result.stdout) == (0, "")
    spec = yaml.safe_load(target.read_text())
    check(spec)
    assert [device["name"] for device in spec["devices"]] == ["GPU-2", "2", "all"], (
        "the index is that of the host"
    )
    assert target.stat().st_mode & 0o777 == 0o644
    assert os.listdir(target.parent) == ["nvidia.yaml"]
    call("--output", str(target), "--json")
    assert names(target.read_text())


def test_command_for_a_task(node: Path) -> None:
    claimed = Ledger().claim("job-1.1", [GpuId("GPU-2")], Owner.of(os.getpid()), container="c")
    assert isinstance(claimed, Claimed)
    result = call("--task", "job-1.1", "--json")
    assert names(result.stdout) == ["job-1.1"]
    assert paths(json.loads(result.stdout)["devices"][0]["containerEdits"]) == ["/dev/nvidia2"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--gpu", "GPU-9"), "GPU-9 is not on this host"),
        (("--task", "gone.1"), "no task gone.1 runs on this host"),
    ],
)
def test_command_for_what_is_not_there(node: Path, arguments: tuple[str, ...], what: str) -> None:
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (66, "")
    assert f"\nError: {what}\nTo fix: " in result.stderr


def test_command_on_a_host_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESOS_GPU_NODE_DIR", str(tmp_path))
    simulated = tmp_path / "gpus.json"
    simulated.write_text('{"gpus": []}')
    monkeypatch.setenv("MESOS_GPU_INVENTORY", str(simulated))
    result = call()
    assert result.exit_code == 66
    assert "no GPUs to describe" in result.stderr
