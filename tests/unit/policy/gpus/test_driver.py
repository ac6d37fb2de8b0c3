"""Versions of drivers: their order, and the table of CUDA."""

import pytest

from mesos_gpu.model.nodes.driver import CUDA_OF_BRANCH, as_new_as, branch_for, cuda_of, newer_of, version_of


def test_driver_version_meets_a_minimum() -> None:
    cases = [
        ("535.9", "535.104", False),
        ("535.104", "535.9", True),
        ("535", "535.0.0", True),
        ("535.0.0-simulated", "535", True),
        ("575.57.08-open", "575.57.09", False),
        ("1000.1", "999", True),
        ("470.82", None, True),
        (None, None, True),
        (None, "1", False),
        ("", "1", False),
        ("r535", "1", False),
    ]
    assert [case for case in cases if as_new_as(*case[:2]) is not case[2]] == []


def test_driver_minimum_that_is_no_version_is_refused() -> None:
    with pytest.raises(ValueError, match="'new' is not a driver version"):
        as_new_as("535", "new")


def test_driver_minimum_of_two_is_the_newer() -> None:
    assert newer_of(None, None) is None
    assert newer_of("535", None) == newer_of(None, "535") == "535"
    assert newer_of("535.9", "535.104") == newer_of("535.104", "535.9") == "535.104"


def test_absurd_numbers_are_no_version() -> None:
    assert version_of("5" * 5000) is None
    assert version_of("535." + "5" * 5000) == (535,)


def test_driver_table_grows_in_both_columns() -> None:
    assert list(CUDA_OF_BRANCH) == sorted(set(CUDA_OF_BRANCH))
    runs = [cuda for _, cuda in CUDA_OF_BRANCH]
    assert runs == sorted(set(runs))


def test_driver_table_gives_the_first_branch_of_a_cuda() -> None:
    want = {
        "12.2": "535", "12.2.140": "535", "12.4": "550", "12": "525", "11.1": "455", "8.0.61": "367", "6.5": "346",
        "13.3": "610", "13.9": None, "new": None, "": None,
    }  # fmt: skip
    assert {cuda: branch_for(cuda) for cuda in want} == want


def test_driver_branches_run_their_own_cuda() -> None:
    for branch, cuda in CUDA_OF_BRANCH:
        assert cuda_of(f"{branch}.54.03") == cuda
        assert branch_for(".".join(map(str, cuda))) == str(branch)
    assert cuda_of("9999.1") == CUDA_OF_BRANCH[-1][1]
    assert cuda_of("340.108") is None
