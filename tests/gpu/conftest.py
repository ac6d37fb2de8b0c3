"""What tests with a GPU share. None of them changes a setting of the card: no MIG mode, no compute mode, no reset.

Those of a `site` run on the card, where there is one, and on a double of the driver: there what they measure means
nothing, and that they run at all is what is proven.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.gpus.probing import ChildProbe
from isolator.shares.shim import build
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.health import Reading, Survey
from tests.conftest import wait_until
from tests.cuda import compiled
from tests.doubles.cuda import CARD_MIB, Cards
from tests.gpu.sites import MIB, Mps, Record, Site
from volumes.keys import REPLACED

#: What was measured, and answers of drivers, to be put below tests/data: files named by driver and model.
FACTS = Path(
    os.environ.get("MESOS_GPU_FACTS_DIR")
    or os.environ.get("OUT")
    or Path(__file__).parents[2] / "build/gpu-facts"
)
#: Loads a library and says from where.
_WHERE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
print(next(line.split()[-1] for line in open("/proc/self/maps") if "/" in line and sys.argv[2] in line))
"""


@pytest.fixture(scope="session")
def probe() -> Iterator[ChildProbe]:
    """Reads NVML, in a child."""
    probe = ChildProbe()
    yield probe
    probe.close()


@pytest.fixture(scope="session")
def survey(probe: ChildProbe) -> Survey:
    """Read NVML once."""
    try:
        return probe.survey()
    except MesosGpuError as error:
        pytest.skip(f"needs a GPU and its driver: {error.what}")


@pytest.fixture(scope="session")
def card(survey: Survey) -> Gpu:
    """The first card."""
    if not survey.readings:
        pytest.skip(f"needs a GPU and its driver: {survey.note}")
    return survey.readings[0].gpu


@pytest.fixture(scope="session")
def facts_name(survey: Survey, card: Gpu) -> str:
    """How files of this driver and card are named."""
    return f"{survey.driver_version}-" + re.sub(r"[^A-Za-z0-9]+", "-", card.model).strip("-")


@pytest.fixture(scope="session")
def libraries() -> dict[str, Path]:
    """The driver's libraries by their names."""
    files = {}
    for stem, name, _ in REPLACED:
        done = subprocess.run(
            [sys.executable, "-c", _WHERE, name, stem],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"needs {name} of the driver: {done.stderr.strip().splitlines()[-1]}")
        files[name] = Path(done.stdout.strip())
    return files


@pytest.fixture(scope="session")
def copies(libraries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of the driver's libraries, where tests can link to them."""
    path = tmp_path_factory.mktemp("driver")
    return {name: Path(shutil.copy(library, path / name)) for name, library in libraries.items()}


@pytest.fixture(scope="session")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The doubles of the driver's libraries, and ours, compiled once."""
    return compiled(tmp_path_factory.mktemp("doubles"))


def on_the_card(request: pytest.FixtureRequest, path: Path) -> Site:
    """The site of this host's first card; a test is skipped where there is none."""
    card: Gpu = request.getfixturevalue("card")
    if card.sharing is None or card.sharing.mig:
        pytest.skip("needs a card whose MIG mode is off")
    libraries = request.getfixturevalue("copies")
    beside = {str(path.parent) for path in request.getfixturevalue("libraries").values()}
    others = ":".join([*sorted(beside), os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(":")
    probe: ChildProbe = request.getfixturevalue("probe")
    try:
        ours = build.have({})
    except MesosGpuError as error:
        pytest.skip(f"needs a C compiler (gcc, libc6-dev): {error.what}")

    def read() -> Reading:
        return next(reading for reading in probe.survey().readings if reading.gpu.id == card.id)

    env = {"PATH": "/usr/bin:/bin", "HOME": str(path), "CUDA_VISIBLE_DEVICES": card.id}
    return Site(
        card,
        True,
        libraries,
        others,
        {"libcuda.so.1": ours.cuda, "libnvidia-ml.so.1": ours.nvml},
        path,
        env,
        read,
    )


def on_a_double(request: pytest.FixtureRequest, path: Path) -> Site:
    """The site of a card that is a file."""
    stubs, ours = request.getfixturevalue("doubles")
    cards = Cards(path / "cards")
    card = Gpu(GpuId(cards.uuid()), "Stub GPU", CARD_MIB, 0, "0000:01:00.0")

    def read() -> Reading:
        told = tuple(sorted((pid, used // MIB) for pid, used in cards.held_bytes().items()))
        return Reading(card, pids=tuple(pid for pid, _ in told), process_mib=told)

    env = {"PATH": "/usr/bin:/bin", "STUB_CARDS": str(cards.path)}
    return Site(
        card, False, {name: stubs / name for _, name, _ in REPLACED}, str(stubs), ours, path, env, read
    )


@pytest.fixture(params=[pytest.param("card", marks=pytest.mark.gpu), "double"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """A card, this host's or a double, and tasks on it."""
    return on_the_card(request, tmp_path) if request.param == "card" else on_a_double(request, tmp_path)


@pytest.fixture
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Record:
    """Keep what was measured, by its name: of a card in `FACTS`, where it stays."""
    places = [request.getfixturevalue(name) for name in ("site", "mps") if name in request.fixturenames]
    is_real = all(place.is_real for place in places)
    path = (
        FACTS / f"{request.getfixturevalue('facts_name')}-measured.json" if is_real else tmp_path / "measured"
    )

    def keep(name: str, value: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, name: value}, indent=1, sort_keys=True))
        print(f"{name}: {value}")

    return keep


@pytest.fixture(scope="session")
def torch_python() -> str:
    """A Python that has PyTorch with CUDA."""
    for python in filter(None, (sys.executable, shutil.which("python3"), "/usr/bin/python3")):
        command = [python, "-c", "import torch; torch.zeros(1).cuda()"]
        if subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 0:
            return python
    pytest.skip("needs PyTorch with CUDA in the Python of the tests, or in python3")


#: Stands for the control program: it answers as one does that has a server.
_CONTROL = """#!/bin/sh
while read -r command of; do case $command in
get_server_list) echo 4242;; get_server_status) echo "ACTIVE";; get_default_*) echo 100.0;;
esac; done
"""


@contextlib.contextmanager
def daemon_of_mps(control: str, path: Path, uuid: str) -> Iterator[dict[str, str]]:
    """Run an MPS daemon with pipes of its own; the environment of its clients."""
    path.mkdir(mode=0o700)
    pipes = {"CUDA_MPS_PIPE_DIRECTORY": str(path), "CUDA_MPS_LOG_DIRECTORY": str(path)}
    env = {**os.environ, **pipes, "CUDA_VISIBLE_DEVICES": uuid}
    daemon = subprocess.Popen([control, "-f"], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    asked = Mps(env, control)
    try:
        wait_until(
            "the daemon answers, or is gone",
            lambda: daemon.poll() is not None or asked.answer("get_default_active_thread_percentage"),
        )
        yield {**env, "CUDA_VISIBLE_DEVICES": "0"}
    finally:
        if daemon.poll() is None:
            asked.answer("quit")
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(30)
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def mps_on_the_card(card: Gpu) -> Iterator[Mps]:
    """A daemon of the tests' own: the card keeps its compute mode (DEFAULT)."""
    if card.sharing is None or card.sharing.mig:
        pytest.skip("needs a card whose MIG mode is off")
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        pytest.skip("needs nvidia-cuda-mps-control")
    # A short name: sockets are below it.
    with daemon_of_mps(control, Path(f"/tmp/mps-{os.getpid()}"), card.id) as env:
        mps = Mps(env, control, True, card.compute_capability)
        with mps.program() as client:
            if client.started != "0" or not mps.servers():
                pytest.skip(
                    f"needs MPS, as this user and in this container: a client gets {client.started}, of"
                    f" {len(mps.servers())} servers"
                )
        yield mps


@contextlib.contextmanager
def mps_on_a_double(stubs: Path, path: Path) -> Iterator[Mps]:
    """Clients of a double of the driver, and a program that answers as the control program does."""
    control = path / "control"
    control.write_text(_CONTROL)
    control.chmod(0o755)
    (path / "server.log").write_text("a server's last words\n")
    own = {"LD_LIBRARY_PATH": str(stubs), "STUB_CARDS": str(Cards(path / "cards").path)}
    yield Mps({**os.environ, **own, "CUDA_MPS_LOG_DIRECTORY": str(path)}, str(control))


@pytest.fixture(params=[pytest.param("card", marks=pytest.mark.gpu), "double"], scope="module")
def mps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mps]:
    """Clients of MPS: on a card of this host, or on a double."""
    with (
        mps_on_the_card(request.getfixturevalue("card"))
        if request.param == "card"
        else mps_on_a_double(request.getfixturevalue("doubles")[0], tmp_path_factory.mktemp("mps"))
    ) as each:
        yield each
