"""Which paths of a host are given: the operator's list, and what no list can allow."""

import os
import pwd
from collections.abc import Sequence
from pathlib import Path

import pytest

from isolator.host.not_started import NotStarted
from isolator.runs.host_paths import check_alone, granted, in_host, in_image, in_nested, roots_of
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.jobs.mount import Mount

SANDBOX = "/mnt/mesos/sandbox"
ME = pwd.getpwuid(os.getuid())


def sources(roots: str, asked: Sequence[Mount], **own: str) -> list[str]:
    return [mount.source for mount in granted(asked, {"MESOS_GPU_VOLUME_ROOTS": roots, **own}, ME)]


def refusal(roots: str, asked: Mount, **own: str) -> str:
    with pytest.raises(NotStarted) as caught:
        sources(roots, [asked], **own)
    return str(caught.value)


def test_links_are_followed_first(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert sources(str(tmp_path), [Mount(f"{tmp_path}/link/", "x")]) == [f"{tmp_path}/real"]
    assert sources(f"{tmp_path}/link:ro", [Mount(f"{tmp_path}/real", "x")]) == [f"{tmp_path}/real"]


def test_mounts_without_a_list_are_not_given(tmp_path: Path) -> None:
    said = "no path is allowed: its operator can set MESOS_GPU_VOLUME_ROOTS on its agent"
    assert said in refusal("", Mount(str(tmp_path), "x"))
    assert said in refusal(" , ", Mount("/", "x"))


def test_refusal_on_a_trial_cluster_names_the_options_of_up(tmp_path: Path) -> None:
    again = "start the cluster again with: mesos-gpu up --volume-root /data"
    assert refusal("", Mount("/data", "x"), MESOS_GPU_TRIAL="1").endswith(f"to tasks; {again}")
    with_scratch = refusal(str(tmp_path), Mount("/data", "x"), MESOS_GPU_TRIAL="1")
    assert with_scratch.endswith(f"use a path in {tmp_path}, or {again}")


def test_mount_of_the_sandbox_needs_no_list(tmp_path: Path) -> None:
    (tmp_path / "fetched.py").touch()
    (tmp_path / "link").symlink_to("/usr/lib")
    own = {"MESOS_SANDBOX": str(tmp_path)}
    assert sources("", [Mount("fetched.py", "/app.py")], **own) == [f"{tmp_path}/fetched.py"]
    for path in ("link", "link/x", ".."):
        assert f"{path} leads out of the sandbox" in refusal("", Mount(path, "/x"), **own)
    assert "this host has no none" in refusal("", Mount("none", "/x"), **own)


def test_mount_that_cannot_be_given_says_why(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/usr")
    os.mkfifo(tmp_path / "pipe")
    for name, why in (
        ("..", "does not give"),
        ("out", "does not give"),
        ("none", "this host has no {}: No such file or directory"),
        ("pipe", "{} is neither a directory nor a regular file"),
    ):
        path = f"{tmp_path}/{name}"
        assert why.format(path) in refusal(str(tmp_path), Mount(path, "x"))


def test_mount_of_another_file_system_is_asked_for_by_itself() -> None:
    with pytest.raises(NotStarted, match="contains another file system, at /dev/"):
        check_alone("/dev")
    check_alone("/dev/pts")


def test_mount_listed_for_reading_is_not_writable(tmp_path: Path) -> None:
    asked = Mount(str(tmp_path), "x", read_only=False)
    assert "for reading only" in refusal(f"{tmp_path}:ro", asked)
    assert sources(f"{tmp_path.parent}:ro,{tmp_path}", [asked]) == [str(tmp_path)]


@pytest.mark.parametrize("path", ["/", "/dev", "/dev/shm", "/proc/self", "/sys/fs/cgroup", "/run"])
def test_mount_that_no_list_allows_is_refused(path: str) -> None:
    assert "does not give" in refusal("/", Mount(path, "x"))


def test_mount_of_the_hosts_own_records_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "work/slaves/S0/frameworks/F/executors/e/runs/c"
    for name in ("node", "volumes", "other"):
        (tmp_path / name).mkdir()
    work.mkdir(parents=True)
    own = {
        "MESOS_GPU_NODE_DIR": str(tmp_path / "node"),
        "MESOS_GPU_VOLUMES": str(tmp_path / "volumes"),
        "MESOS_DIRECTORY": str(work),
        "MESOS_SANDBOX": str(work),
    }
    for path in ("", "node", "volumes", "work", "work/slaves/S0", "work/meta"):
        assert "does not give" in refusal(str(tmp_path), Mount(f"{tmp_path}/{path}", "x"), **own)
    assert sources(str(tmp_path), [Mount(f"{tmp_path}/other", "x")], **own)


@pytest.mark.parametrize("roots", ["data", "/data,:ro", "/data:rw"])
def test_mount_list_that_is_invalid_is_named(roots: str) -> None:
    with pytest.raises(BadConfiguration, match="MESOS_GPU_VOLUME_ROOTS names"):
        list(roots_of({"MESOS_GPU_VOLUME_ROOTS": roots}))


@pytest.mark.parametrize(
    ("target", "want"),
    [("/data//x/", "/data/x"), ("out", f"{SANDBOX}/out"), ("a/./b", f"{SANDBOX}/a/b"), ("/etc/a", "/etc/a")],
)
def test_mount_target_in_an_image(target: str, want: str) -> None:
    assert in_image([Mount("/data", target, read_only=False)], SANDBOX) == (("/data", want, False),)


def test_mount_target_on_the_hosts_file_system(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr/lib")
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "data").mkdir()

    def place(target: str) -> str:
        ((_, source, _),) = in_host([Mount("/data", target)], f"{tmp_path}/sandbox")
        return source

    assert (place("a//b/"), place(f"{tmp_path}/data/")) == ("a/b", f"{tmp_path}/data")
    for target in (
        "/",
        "/usr/lib",
        "/etc",
        str(Path(__file__).parents[4]),
        f"{tmp_path}/link",
        str(tmp_path),
        f"{tmp_path}/sandbox/x",
    ):
        with pytest.raises(
            NotStarted, match=r"which no volume may cover; write --volume /data:.*, which is in the sandbox"
        ):
            place(target)
    with pytest.raises(
        NotStarted,
        match=r"none does not exist on this host.* write --volume /data:none:ro, which is in the sandbox",
    ):
        place(f"{tmp_path}/none")
    with pytest.raises(NotStarted, match="leads out of the sandbox"):
        place("a/../..")


def test_the_agent_makes_no_mount_point_where_an_image_may_have_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    directory, file = str(tmp_path), f"{tmp_path}/file"
    for source, target in ((directory, "/data"), (directory, "a/b"), (file, "a")):
        assert in_nested([Mount(source, target)], SANDBOX) == ((source, target, True),)
    for source, target in ((directory, "/etc/nologin"), (file, "/data")):
        with pytest.raises(NotStarted, match="Mesos cannot mount safely at"):
            in_nested([Mount(source, target)], SANDBOX)


@pytest.mark.parametrize(
    "target", ["/", "//", "/x/..", "/dev/shm", "/proc", "/sys/x", "/usr/local", "/usr/local/nvidia/x", "/mnt", "../x"],
)  # fmt: skip
def test_mount_that_hides_files_given_to_an_image_is_refused(target: str) -> None:
    with pytest.raises(NotStarted, match="use a"):
        in_image([Mount("/data", target)], SANDBOX)
