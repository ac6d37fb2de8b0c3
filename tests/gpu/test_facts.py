"""What this host's driver says, kept as fixtures for hosts without a card; and that we read it right."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from isolator.shares.abilities import Abilities, words_of
from isolator.shares.driver.limits import CGROUPS
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.nodes.health import Survey
from mesos_gpu.wire.mesos.report import gpu_from_json, gpu_to_json
from tests.doubles.nvml.mig_tables import MIG_TABLES
from tests.gpu.conftest import FACTS

pytestmark = pytest.mark.gpu

COMMANDS = {
    "nvidia-smi": ["nvidia-smi", "-q"],
    "mig profiles": ["nvidia-smi", "mig", "-lgip"],
    "mig placements": ["nvidia-smi", "mig", "-lgipp"],
    "mps 3": ["nvidia-cuda-mps-control", "-p", "3", "-h"],
    "mps": ["nvidia-cuda-mps-control", "-h"],
}
FILES = (
    "/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/proc/driver/nvidia-caps/mig-minors", "/proc/devices",
    str(CGROUPS / "dmem.capacity"), str(CGROUPS / "cgroup.controllers"),
)  # fmt: skip
SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


def said(command: list[str]) -> dict[str, Any]:
    """Exit code and output of a program; None: it is not there, or hangs."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"code": None, "text": str(error)}
    return {"code": done.returncode, "text": done.stdout + done.stderr}


def text_of(path: str) -> str | None:
    """A file's text; None: there is none."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def smi(field: str, card: Gpu) -> str:
    """A field of the card as nvidia-smi has it."""
    command = ["nvidia-smi", f"--id={card.id}", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_facts_of_the_host_are_saved_and_read_back(survey: Survey, facts_name: str) -> None:
    gpus = tuple(reading.gpu for reading in survey.readings)
    completed = Abilities(os.environ).at_once(Inventory(gpus, "nvml", survey.driver_version))
    facts = {
        "driver_version": survey.driver_version,
        "cuda_version": survey.cuda_version,
        "kernel": os.uname().release,
        "gpus": [gpu_to_json(gpu) for gpu in gpus],
        "abilities": {gpu.id: words_of(gpu.sharing) for gpu in completed.gpus},
        "commands": {name: said(command) for name, command in COMMANDS.items()},
        "files": {path: text_of(path) for path in FILES},
    }
    FACTS.mkdir(parents=True, exist_ok=True)
    path = FACTS / f"{facts_name}.json"
    path.write_text(json.dumps(facts, indent=1))
    print(path)
    saved = json.loads(path.read_text())
    assert tuple(map(gpu_from_json, saved["gpus"])) == gpus
    for gpu in completed.gpus:
        assert gpu.sharing is None or len(gpu.sharing.abilities) >= 6, "each ability, with why not"


def test_the_capacity_is_what_the_driver_leaves(card: Gpu) -> None:
    assert card.sharing is not None
    left_mib = int(smi("memory.total", card)) - int(smi("memory.reserved", card))
    assert abs(card.sharing.memory_mib - left_mib) <= 1, "both round"


def test_the_sm_count_is_cudas(card: Gpu, libraries: dict[str, Path]) -> None:
    assert card.sharing is not None
    if card.sharing.mig:
        pytest.skip("needs a card whose MIG mode is off")
    program = (
        "import ctypes, sys; cuda = ctypes.CDLL(sys.argv[1]); assert cuda.cuInit(0) == 0; n = ctypes.c_int();"
        f"assert cuda.cuDeviceGetAttribute(ctypes.byref(n), {SM_COUNT}, 0) == 0; print(n.value)"
    )
    done = subprocess.run(
        ["python3", "-c", program, str(libraries["libcuda.so.1"])],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": card.id},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert card.sharing.sm_count == int(done.stdout)


def test_the_mig_mode_is_nvidia_smis(card: Gpu) -> None:
    assert card.sharing is not None
    assert card.sharing.mig == (smi("mig.mode.current", card) == "Enabled")


def test_placements_are_those_of_the_table(card: Gpu) -> None:
    """The tables of the fakes stand for this card."""
    if card.model not in MIG_TABLES:
        pytest.skip(f"no table of MIG profiles of {card.model}")
    if os.geteuid() != 0:
        pytest.skip("placements of MIG need root")
    import pynvml

    from mesos_gpu.adapters.nvml.sharing import SharingFacts

    pynvml.nvmlInit()
    try:
        profiles = SharingFacts(pynvml).profiles(pynvml.nvmlDeviceGetHandleByUUID(card.id))
    finally:
        pynvml.nvmlShutdown()
    plain = {
        each.name: (each.number, each.starts, each.width)
        for each in profiles
        if not {"+", "-"} & set(each.name)
    }
    table = {each.name: (each.number, each.starts, each.width) for each in MIG_TABLES[card.model].profiles()}
    assert plain == table
