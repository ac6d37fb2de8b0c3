"""What an image with a share of a card needs before its command begins."""

import os
import stat
from pathlib import Path

import pytest

from isolator.confinement.enclosure import Enclosure
from isolator.host.not_started import NotStarted
from isolator.runs.image_run import prepare
from isolator.runs.run import Launch
from isolator.shares.tenancy import Given
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.tasks.assignment import Assignment, Outcome


def without_gate(tmp_path: Path, given: Given, *, strict: bool) -> Launch:
    """Where no port is denied there is no gate."""
    enclosure = Enclosure("c1", isolated=True, cgroup=None, devices=(), extra=(), gpu_major=195)
    plan = Assignment("train", 1, command="true", image="cuda:1", strict=strict, gpus=(GpuId("GPU-a"),))
    return Launch(plan, "train.1", {"MESOS_SANDBOX": str(tmp_path)}, enclosure, None, given)


def test_a_strict_share_runs_no_image_that_nobody_can_look_into(tmp_path: Path) -> None:
    given = Given(mounts=((str(tmp_path), "/usr/local/nvidia/region", True),))
    with pytest.raises(NotStarted, match="a libcuda of its own is checked at its gate"):
        prepare(without_gate(tmp_path, given, strict=True), ImageConfig(), Inventory())


def test_a_share_whose_limits_are_set_at_the_gate_needs_one(tmp_path: Path) -> None:
    given = Given(at_gate=(lambda cgroup, leave: None,))
    with pytest.raises(NotStarted, match="the limits of a share are set at the container's gate") as refused:
        prepare(without_gate(tmp_path, given, strict=False), ImageConfig(), Inventory())
    assert refused.value.outcome == Outcome(infrastructure=True, refused_gpus=(GpuId("GPU-a"),))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only it runs images as root")
@pytest.mark.parametrize(("user", "mode"), [("root", 0o700), ("nobody", 0o755)])
def test_the_sandbox_of_an_images_root_is_closed_to_others(tmp_path: Path, user: str, mode: int) -> None:
    """Set-user-ID programs that it leaves there are on the host, and root's."""
    runs = tmp_path / "runs"
    sandbox = runs / "c1"
    sandbox.mkdir(parents=True)
    runs.chmod(0o755)
    enclosure = Enclosure("c1", isolated=True, cgroup=None, devices=(), extra=(), gpu_major=195)
    own = {"MESOS_SANDBOX": str(sandbox), "MESOS_GPU_ALLOW_ROOT": "image"}
    plan = Assignment("train", 1, command="true", image="cuda:1", user=user)
    prepare(Launch(plan, "train.1", own, enclosure), ImageConfig(), Inventory())
    assert stat.S_IMODE(runs.stat().st_mode) == mode
