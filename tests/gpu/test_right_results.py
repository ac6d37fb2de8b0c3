"""Half-precision products under MPS, at every percentage that we hand out, compared with the CPU's in double precision.

A public report has cuBLAS leave parts of products unwritten at some percentages on Hopper, with success codes. The
daemon here has pipes of its own and the card keeps its compute mode (DEFAULT).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.sharing.percentages import allowed

pytestmark = pytest.mark.gpu

CONTROL = "nvidia-cuda-mps-control"
DOUBTED = (14, 40, 70)  # whether the card is affected is recorded there
#: Shapes of products as layers have them; the result is poisoned first, so that what is not written is seen.
PRODUCTS = """
import itertools, torch
torch.manual_seed(0)
wrong = 0
for kind, tolerance in ((torch.float16, 2e-2), (torch.bfloat16, 6e-2)):
    for m, n, k in itertools.product((64, 257, 1024), (128, 1000, 4096), (64, 512)):
        a, b = torch.randn(m, k).to(kind), torch.randn(k, n).to(kind)
        want = a.double() @ b.double()
        out = torch.full((m, n), float("nan"), dtype=kind, device="cuda")
        torch.matmul(a.cuda(), b.cuda(), out=out)
        off = (out.cpu().double() - want).abs() > tolerance * (1 + want.abs())
        wrong += int((off | out.cpu().isnan()).any())
print(wrong, torch.cuda.get_device_properties(0).multi_processor_count)
"""


@pytest.fixture(scope="module")
def pipes(card: Gpu) -> Iterator[dict[str, str]]:
    """The environment of clients of a daemon of this test's own."""
    if card.sharing is None or card.sharing.mig:
        pytest.skip("needs a card whose MIG mode is off")
    if not shutil.which(CONTROL):
        pytest.skip(f"needs {CONTROL}")
    torch = subprocess.run(
        [sys.executable, "-c", "import torch; torch.zeros(1).cuda()"], capture_output=True, check=False
    )
    if torch.returncode:
        pytest.skip("needs PyTorch with CUDA in the Python of the tests")
    path = Path(f"/tmp/mps-{os.getpid()}")  # sockets have short names
    path.mkdir(mode=0o700)
    env = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": card.id,
        "CUDA_MPS_PIPE_DIRECTORY": str(path),
        "CUDA_MPS_LOG_DIRECTORY": str(path),
    }
    daemon = subprocess.Popen([CONTROL, "-f"], env=env, stdin=subprocess.DEVNULL)
    try:
        yield {**env, "CUDA_VISIBLE_DEVICES": "0"}
    finally:
        subprocess.run([CONTROL], env=env, input="quit\n", text=True, timeout=30, check=False)
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(30)
        shutil.rmtree(path, ignore_errors=True)


def products(env: dict[str, str], percentage: int) -> tuple[int, int]:
    """How many products are wrong, and how many SMs the client saw."""
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS],
        env={**env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    wrong, sms = done.stdout.split()[-2:]
    return int(wrong), int(sms)


def handed_out(card: Gpu) -> list[int]:
    """Percentages of the card that shares may get: ends and middles of the ranges that are known to be right. At less
    than 13 cuBLAS before 12.6 ends with SIGFPE, which nobody takes for a result."""
    ranges = allowed(card.compute_capability)
    return sorted({p for first, last in ranges for p in (first, (first + last) // 2, last) if p >= 13})


def test_products_are_right_at_every_percentage_that_is_handed_out(card: Gpu, pipes: dict[str, str]) -> None:
    results = {percentage: products(pipes, percentage) for percentage in handed_out(card)}
    print("percentage: wrong products, SMs", results)
    assert {percentage: wrong for percentage, (wrong, _) in results.items() if wrong} == {}


@pytest.mark.parametrize("percentage", DOUBTED)
def test_whether_the_card_is_affected_is_recorded(card: Gpu, pipes: dict[str, str], percentage: int) -> None:
    wrong, sms = products(pipes, percentage)
    print(f"{card.model} at {percentage} %: {wrong} products wrong, {sms} SMs")
    if wrong:
        ranges = allowed(card.compute_capability)
        assert not any(first <= percentage <= last for first, last in ranges), "a share could get it"
