"""Changes of a share that a running task can take, and what a card lacks for them."""

from dataclasses import replace

import pytest

from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.policy.sharing.resizing import fixed, lacking, resized

OLD = Share(250, 2000, 2000, Method.SHIM_WINDOWS)
MEMORY, COMPUTE = replace(OLD, memory_mib=3000, memory_max_mib=3000), replace(OLD, compute_milli=300)


@pytest.mark.parametrize("method", Method)
def test_mps_2_fixes_compute_and_mig_both(method: Method) -> None:
    old, memory, compute = (replace(each, method=method) for each in (OLD, MEMORY, COMPUTE))
    assert bool(fixed(old, memory)) == (method is Method.MIG)
    assert bool(fixed(old, compute)) == (method in (Method.MIG, Method.SHIM_MPS2))
    assert fixed(old, old) == ""


@pytest.mark.parametrize(
    ("old", "new", "lacks"),
    [
        ([OLD], [MEMORY], ""),
        ([OLD, OLD], [MEMORY, OLD], "g has 0 MiB free, and 1000 MiB more are asked for"),
        ([OLD, OLD, OLD], [replace(OLD, memory_mib=500), OLD, OLD], ""),  # it was too much, and becomes less
        ([OLD], [replace(OLD, compute_milli=1001)], "g has 75 % of its compute free, and 75.1 % more are asked for"),
    ],
)  # fmt: skip
def test_card_lacks_what_its_shares_do_not_leave(old: list[Share], new: list[Share], lacks: str) -> None:
    assert lacking("g", 4000, 1000, old, new) == lacks


def test_share_bursts_where_its_method_lets_it_and_no_further_than_its_card() -> None:
    request = ShareRequest(300, memory_mib=3000, memory_max_mib=90000)
    assert resized(OLD, request, 8000) == Share(300, 3000, 3000, Method.SHIM_WINDOWS)
    kernel = replace(OLD, method=Method.DMEM_WINDOWS)
    assert resized(kernel, request, 8000) == Share(300, 3000, 8000, Method.DMEM_WINDOWS)
    assert resized(OLD, ShareRequest(500, memory_milli=500), 8000).memory_mib == 4000
