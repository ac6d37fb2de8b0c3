"""Capabilities of MIG instances, as the driver's file has them."""

from pathlib import Path

import pytest

from mesos_gpu.adapters.nvml.mig import MINORS, capability_minors
from mesos_gpu.errors import Unavailable

TEXT = """config 1
monitor 2
gpu0/gi0/access 3
gpu0/gi0/ci0/access 4
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu1/gi1/access 147
gpu1/gi1/ci0/access 148
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with the driver's file."""
    path = tmp_path / MINORS
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    return tmp_path


def test_mig_minors_of_an_instance_follow_from_its_card(root: Path) -> None:
    assert capability_minors(0, 1, 0, root) == (12, 13)
    assert capability_minors(1, 1, 0, root) == (147, 148)


@pytest.mark.parametrize(
    ("instance", "says"), [((0, 2, 0), "gpu0/gi2/access"), ((0, 1, 3), "gpu0/gi1/ci3/access")]
)
def test_mig_minors_of_an_unknown_instance_are_an_error(
    root: Path, instance: tuple[int, int, int], says: str
) -> None:
    with pytest.raises(Unavailable, match=f"has no {says}"):
        capability_minors(*instance, root)


def test_mig_minors_without_the_file_of_the_driver_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="mig-minors cannot be read: No such file"):
        capability_minors(0, 0, 0, tmp_path)
