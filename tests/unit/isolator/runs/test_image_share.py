"""What an image with a share of a card needs before its command begins."""

from pathlib import Path

import pytest

from isolator.confinement.enclosure import Enclosure
from isolator.host.not_started import NotStarted
from isolator.runs.image_run import prepare
from isolator.runs.run import Launch
from isolator.shares.tenancy import Given
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment


def test_a_strict_share_runs_no_image_that_nobody_can_look_into(tmp_path: Path) -> None:
    """Where no port is denied there is no gate, at which a libcuda of the image's own would be seen."""
    enclosure = Enclosure("c1", isolated=True, cgroup=None, devices=(), extra=(), gpu_major=195)
    given = Given(mounts=((str(tmp_path), "/usr/local/nvidia/share", True),))
    plan = Assignment("train", 1, command="true", image="cuda:1", strict=True)
    launch = Launch(plan, "train.1", {"MESOS_SANDBOX": str(tmp_path)}, enclosure, None, given)
    with pytest.raises(NotStarted, match="a libcuda of its own is seen at its gate"):
        prepare(launch, ImageConfig(), Inventory())
