"""What a cluster with images or devices refuses before anything is made."""

from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.errors import Unavailable
from mesos_gpu.local.cluster import Cluster, choose_isolation

CLUSTER = Path("/no/such/cluster")
linux = pytest.mark.skipif(choose_isolation("auto") != "linux", reason="needs root and cgroup v1 controllers")


@pytest.mark.parametrize("wish", [{"images": Path("/")}, {"devices": "mesos"}, {"devices": "cgroup2"}])
def test_posix_isolation_has_neither_images_nor_devices(wish: dict[str, Any]) -> None:
    with pytest.raises(Unavailable, match="isolation is posix") as refusal:
        Cluster(CLUSTER, isolation="posix", **wish)
    assert refusal.value.remedy == "provide it, or omit images and devices"


@linux
def test_images_are_a_directory() -> None:
    with pytest.raises(Unavailable, match="/no/such/images is not a directory"):
        Cluster(CLUSTER, images=Path("/no/such/images")).start()


@linux
def test_images_need_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="no program tar"):
        Cluster(CLUSTER, images=tmp_path)
