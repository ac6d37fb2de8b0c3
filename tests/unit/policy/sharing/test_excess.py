"""Tasks beyond their share: what counts, what is done after how many looks, and which libcuda is none of ours."""

import pytest

from mesos_gpu.model.shares.request import OnExcess
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.policy.sharing.excess import Treatment, foreign, looks_over, treatment

SHARE = Share(250, 20000, 20000, Method.SHIM_WINDOWS)
OURS, REAL, OTHER = (1, 10), (1, 11), (1, 99)
LIBRARY = "/usr/local/nvidia/lib64"


@pytest.mark.parametrize(
    ("memory_mib", "before", "looks"),
    [
        (20000, 0, 0),
        (21024, 0, 0),  # the slack
        (21025, 0, 1),
        (21025, 1, 2),
        (30000, 3, 3),  # it is not counted for ever
        (21024, 2, 0),
        (None, 2, 2),  # a look that says nothing neither counts nor clears
    ],
)
def test_excess_counts_looks_beyond_a_share(memory_mib: int | None, before: int, looks: int) -> None:
    assert looks_over(SHARE, memory_mib, 1024, before) == looks


@pytest.mark.parametrize("method", Method)
def test_excess_is_looked_for_only_where_libraries_keep_the_share(method: Method) -> None:
    share = Share(250, 20000, 20000, method)
    assert looks_over(share, 90000, 0, 0) == (method.memory_by == "shim")


def test_excess_begins_beyond_the_burst_of_a_share() -> None:
    assert looks_over(Share(250, 20000, 40000, Method.SHIM_MPS2), 40000, 0, 0) == 0


@pytest.mark.parametrize(
    ("on_excess", "wanted"),
    [
        (OnExcess.IGNORE, ["none", "none", "none", "none"]),
        (OnExcess.WARN, ["none", "none", "warn", "warn"]),
        (OnExcess.END, ["none", "none", "warn", "end"]),
    ],
)
def test_excess_is_reported_before_the_task_is_ended(on_excess: OnExcess, wanted: list[str]) -> None:
    assert [treatment(looks, on_excess) for looks in range(4)] == [Treatment(word) for word in wanted]


@pytest.mark.parametrize(
    ("mapped", "named"),
    [
        ({f"{LIBRARY}/libcuda.so.1": OURS, f"{LIBRARY}/libmgpu-real-cuda.so": REAL}, ""),
        ({"/usr/lib/x86_64-linux-gnu/libcuda.so.535.1": OURS}, ""),  # ours lie over the host's
        ({"/home/ann/libcuda.so.1": OTHER}, "/home/ann/libcuda.so.1"),
        ({f"{LIBRARY}/libcuda.so.1": OURS, "/tmp/libcuda.so.1 (deleted)": OTHER}, "/tmp/libcuda.so.1 (deleted)"),
        ({f"{LIBRARY}/libmgpu-real-cuda.so": REAL}, f"{LIBRARY}/libmgpu-real-cuda.so"),  # without ours before it
        ({"/usr/lib/libcudart.so.12": OTHER, "/bin/python3": OTHER}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_libcuda_that_is_none_of_ours_is_named(mapped: dict[str, tuple[int, int]], named: str) -> None:
    assert foreign(mapped.items(), frozenset({OURS}), "libmgpu-real-cuda.so") == named
