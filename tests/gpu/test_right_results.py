"""Half-precision products under MPS, at every percentage that we hand out, compared with the CPU's in double precision.

A public report has cuBLAS leave parts of products unwritten at some percentages on Hopper, with success codes. The
daemon here has pipes of its own and the card keeps its compute mode (DEFAULT).
"""

import subprocess
from collections.abc import Mapping

import pytest

from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.sharing.percentages import allowed
from tests.gpu.sites import Mps, Record

pytestmark = [pytest.mark.gpu, pytest.mark.parametrize("mps", ["card"], indirect=True)]

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


def products(python: str, env: Mapping[str, str], percentage: int) -> tuple[int, int]:
    """How many products are wrong, and how many SMs the client saw."""
    done = subprocess.run(
        [python, "-c", PRODUCTS],
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


@pytest.mark.timeout(2400)
def test_products_are_right_at_every_percentage_that_is_handed_out(
    card: Gpu, mps: Mps, torch_python: str, record: Record
) -> None:
    results = {percentage: products(torch_python, mps.env, percentage) for percentage in handed_out(card)}
    record("products that are wrong, and multiprocessors, by percentage", results)
    assert {percentage: wrong for percentage, (wrong, _) in results.items() if wrong} == {}


@pytest.mark.parametrize("percentage", DOUBTED)
def test_card_that_is_affected_is_recorded(
    card: Gpu, mps: Mps, torch_python: str, record: Record, percentage: int
) -> None:
    wrong, sms = products(torch_python, mps.env, percentage)
    record(f"products at {percentage} %", {"wrong": wrong, "multiprocessors": sms})
    if wrong:
        ranges = allowed(card.compute_capability)
        assert not any(first <= percentage <= last for first, last in ranges), "a share could get it"
