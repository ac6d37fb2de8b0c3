"""Exports of a driver against what our library knows."""

import pytest

from isolator.shares.shim.exports import unknown, wrapped


def test_wrapped_functions_are_read_from_the_sources() -> None:
    assert {
        "cuInit",
        "cuLaunchKernel",
        "cuLaunchKernel_ptsz",
        "cuMemAlloc_v2",
        "cuGraphAddNode_v2",
    } <= wrapped()
    assert "cuCtxGetDevice" not in wrapped(), "asked of the driver, and not wrapped"


@pytest.mark.parametrize(
    "name",
    [
        "cuMemAlloc_v3",
        "cuLaunchKernelEx_v2",
        "cuMemAllocAsync_v2",
        "cuGraphInstantiate_v3",
        "cuArrayCreate_v3",
    ],
)
def test_a_new_way_to_take_memory_or_to_start_work_is_noticed(name: str) -> None:
    assert unknown([name, *wrapped()]) == (name,)


@pytest.mark.parametrize(
    "name",
    [
        "cuMemcpyHtoD_v2",
        "cuMemHostAlloc",
        "cuLaunchHostFunc",
        "cublasCreate_v2",
        "cudnnCreate",
        "cuMemAllocHost",
    ],
)
def test_functions_with_similar_names_are_left_alone(name: str) -> None:
    """HAMi-core #215: names that only begin with `cu`."""
    assert unknown([name]) == ()
