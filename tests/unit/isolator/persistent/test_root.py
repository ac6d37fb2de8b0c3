"""Directories of persistent volumes: whose they are, what tasks may have planted in them, and their removal."""

import os
import pwd
import shutil
import stat
from pathlib import Path

import pytest

from isolator.host.not_started import NotStarted
from isolator.persistent.removal import Removal
from isolator.persistent.root import SETTING, PersistentRoot
from isolator.runs.host_paths import granted
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.nodes.gpu import VolumeRoot
from tests.conftest import wait_until

ID = "0b1c2d3e-0000-4000-8000-0123456789ab"
OTHER = "1b1c2d3e-0000-4000-8000-0123456789ab"
ME = pwd.getpwuid(os.getuid())
TASK = pwd.struct_passwd(("task", "x", 60123, 60123, "", "/", "/bin/sh")) if os.geteuid() == 0 else ME


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "persistent"
    path.mkdir(mode=0o700)
    return path


def made(place: Path, user: pwd.struct_passwd = TASK, *, is_made: bool = False) -> tuple[int, int]:
    with PersistentRoot(str(place)) as root:
        return root.make(ID, user, is_made=is_made)


def test_volume_is_made_for_its_user_alone_and_found_again(place: Path) -> None:
    identity = made(place)
    status = (place / ID).stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (TASK.pw_uid, 0o700)
    assert identity == (status.st_dev, status.st_ino)
    (place / ID / "kept").touch()
    assert made(place, is_made=True) == identity
    assert made(place) == identity, "its first launch came to nothing"


def test_volume_that_is_gone_is_not_made_again(place: Path) -> None:
    with pytest.raises(
        NotStarted, match=r"has no volume .* any more; check that its disk is mounted"
    ) as caught:
        made(place, is_made=True)
    assert caught.value.outcome.infrastructure
    assert not (place / ID).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a directory of another user")
def test_volume_of_another_user_is_not_given(place: Path) -> None:
    made(place)
    other = pwd.struct_passwd(("other", "x", 60124, 60124, "", "/", "/bin/sh"))
    with pytest.raises(NotStarted, match="belongs to uid 60123, but the task runs as other"):
        made(place, other)
    (place / ID / "kept").touch()
    os.chown(place / ID, 0, 0)
    with pytest.raises(NotStarted, match="belongs to uid 0"):
        made(place)


def test_link_in_the_place_of_a_volume_is_not_followed(place: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (place / ID).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match=ID):
        made(place)
    with PersistentRoot(str(place)) as root:
        assert root.remove(ID)
    assert (tmp_path / "other").is_dir()


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o711])
def test_root_that_others_may_enter_is_refused(place: Path, mode: int) -> None:
    place.chmod(mode)
    with pytest.raises(BadConfiguration, match=f"its owner is uid {os.geteuid()} and its mode {mode:04o}"):
        PersistentRoot(str(place))


@pytest.mark.parametrize(("path", "why"), [("/none/here", "No such file"), ("here", "not an absolute path")])
def test_root_that_cannot_be_used_names_the_setting(path: str, why: str) -> None:
    with pytest.raises(BadConfiguration, match=f"{SETTING} is '{path}'.*{why}"):
        PersistentRoot.of({SETTING: path})


@pytest.mark.parametrize("name", ["..", ".", "", f"../{ID}", f"{ID}/x", "-rf", ID.upper()])
def test_only_ids_of_volumes_are_names_in_the_root(place: Path, name: str) -> None:
    with PersistentRoot(str(place)) as root:
        for use in (root.remove, root.path_of):
            with pytest.raises(ValueError, match="is not a valid id of a volume"):
                use(name)


@pytest.mark.skipif(shutil.which("rm") is None, reason="needs rm")
def test_removal_follows_no_link_and_goes_as_deep_as_tasks_do(place: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    made(place)
    (place / ID / "link").symlink_to(tmp_path / "other")
    os.mkfifo(place / ID / "fifo")
    at = os.open(place / ID, os.O_RDONLY)
    for _ in range(1100):  # more than Python's calls, and the longest path, may be deep
        os.mkdir("deep", dir_fd=at)
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    with PersistentRoot(str(place)) as root:
        assert root.remove(ID)
        assert root.remove(ID), "what is gone is gone"
    assert os.listdir(place) == []
    assert (tmp_path / "other" / "kept").exists()


def test_monitor_removes_what_it_is_asked_to_and_reports_it(place: Path) -> None:
    made(place)
    (place / OTHER).mkdir()
    removal = Removal({SETTING: str(place)})
    assert removal.look() == VolumeRoot()
    removal.begin([ID])
    wait_until("it is removed", lambda: removal.look() == VolumeRoot(removed=(ID,)))
    assert os.listdir(place) == [OTHER]
    place.chmod(0o755)
    said = removal.look()
    assert said is not None
    assert "its mode 0755" in said.problem
    assert Removal({}).look() is None


def test_task_gets_its_volume_and_no_path_of_the_root(place: Path, tmp_path: Path) -> None:
    own = {SETTING: str(place), "MESOS_GPU_VOLUME_ROOTS": str(tmp_path), "MESOS_SANDBOX": str(tmp_path)}
    data = Mount(ID, "data", read_only=False, volume_mib=10)
    below = Mount("./data", "/var/lib/db", read_only=False)
    volume, linked = granted([data, below], own, ME)
    assert (volume.source, volume.target, volume.read_only) == (f"{place}/{ID}", "data", False)
    assert (linked.source, linked.target, linked.identity) == (volume.source, "/var/lib/db", volume.identity)
    for path in (place / ID, place, tmp_path):
        with pytest.raises(NotStarted, match="does not give"):
            granted([Mount(str(path), "x")], own, ME)
    with pytest.raises(NotStarted, match=f"set {SETTING} on its agent"):
        granted([data], {}, ME)
    with pytest.raises(NotStarted, match="gets another uid at each launch; name a user"):
        granted([data], {**own, "MESOS_GPU_POOL_UID": "60000"}, ME)
