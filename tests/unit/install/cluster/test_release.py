"""What packages say of themselves: read without dpkg, and refused with what they should be."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.install.cluster.release import AGENT, PROGRAM, Release, of_deb, of_wheel
from tests.unit.install.cluster.test_file import described as file_of
from tests.unit.install.cluster.test_file import problems


def deb(path: Path, name: str = PROGRAM, version: str = "1.2.3", form: str = "xz", **fields: str) -> Path:
    """A package that has nothing but its control."""
    said = {
        "Package": name,
        "Version": version,
        "Architecture": "amd64",
        "Depends": "python3.11, libc6",
        **fields,
    }
    text = "".join(f"{key}: {value}\n" for key, value in said.items() if value).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{form}") as archive:  # type: ignore[call-overload]
        member = tarfile.TarInfo("./control")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    parts = {
        "debian-binary": b"2.0\n",
        f"control.tar.{form}".rstrip("."): packed.getvalue(),
        "data.tar": b"\0" * 4096,
    }
    made = b"!<arch>\n"
    for name_of, data in parts.items():
        made += (
            f"{name_of:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
            + data
            + b"\n" * (len(data) % 2)
        )
    path.write_bytes(made)
    return path


@pytest.mark.parametrize("form", ["xz", "gz", ""])
def test_a_debian_package_says_release_machine_and_what_it_needs(tmp_path: Path, form: str) -> None:
    made = of_deb(deb(tmp_path / "a.deb", form=form), PROGRAM)
    assert made == Release("mesos-gpu", "1.2.3", "amd64", "python3.11, libc6")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
@pytest.mark.parametrize("compression", ["xz", "none"])
def test_release_of_a_package_built_by_dpkg_is_read(tmp_path: Path, compression: str) -> None:
    (tmp_path / "t/DEBIAN").mkdir(parents=True)
    control = "Package: mesos-gpu-agent\nVersion: 0.1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n more\n"
    (tmp_path / "t/DEBIAN/control").write_text(control)
    command = ["dpkg-deb", f"-Z{compression}", "--build", str(tmp_path / "t"), str(tmp_path / "a.deb")]
    subprocess.run(command, check=True, capture_output=True)
    assert of_deb(tmp_path / "a.deb", AGENT) == Release("mesos-gpu-agent", "0.1", "all", "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"PK" + data, "not an ar archive"),
        (lambda data: data[:100], "not a Debian package"),
        (lambda data: data.replace(b"control.tar", b"another.tar"), "no control"),
        (lambda data: data[:150] + b"\0" * 20 + data[170:], "not a Debian package"),
    ],
)
def test_release_of_a_damaged_package_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    path = deb(tmp_path / "a.deb")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=said):
        of_deb(path, PROGRAM)


def test_another_package_and_a_wheel_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must be the package mesos-gpu .*; a\.deb has mesos-gpu-agent"):
        of_deb(deb(tmp_path / "a.deb", AGENT), PROGRAM)
    with pytest.raises(ValueError, match="has no Architecture"):
        of_deb(deb(tmp_path / "a.deb", Architecture=""), PROGRAM)
    assert of_wheel(Path("mesos_gpu-0.2.0-py3-none-any.whl")).version == "0.2.0"
    with pytest.raises(ValueError, match="must be mesos_gpu-VERSION"):
        of_wheel(Path("requests-2.0-py3-none-any.whl"))


def test_two_packages_of_a_file_are_of_one_release(tmp_path: Path) -> None:
    one, other = deb(tmp_path / "a.deb"), deb(tmp_path / "b.deb", AGENT, "1.2.4")
    package = {"deb": str(one), "agent_deb": str(other)}
    assert "of release 1.2.4, but deb is of 1.2.3" in problems(file_of(package=package))["/package/agent_deb"]
    alone = {"program": "/x", "agent_deb": str(other)}
    assert "is for a deb" in problems(file_of(package=alone))["/package/agent_deb"]
