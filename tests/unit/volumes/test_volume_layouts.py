"""A driver wherever a host has it: the same volume from every layout, and the reason where there can be none."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from mesos_gpu.errors import Conflict, NotFound, Unavailable
from tests.doubles.elf_files import shared_object
from tests.unit.volumes.layouts import (
    LIBRARIES,
    NAMED,
    PROGRAMS,
    TAKEN,
    UNNAMED,
    Layout,
    V,
    flat,
    link_to,
    plant,
    write,
)
from volumes.build import build, make
from volumes.discover import discover
from volumes.manifest import plan
from volumes.model import Plan
from volumes.places import Given
from volumes.store import verify
from volumes.version import driver_version

OLD = "535.261.03"
GIVEN = "/srv/drivers/580"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners")


def call(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["volume", *arguments])
    assert result.exit_code == code, result.output
    return result


def planned(root: Path, **given: str) -> dict[str, Any]:
    options = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    document = json.loads(call("plan", "--root", str(root), *options, "--json").stdout)
    assert isinstance(document, dict)
    return document


def names(made: dict[str, Any]) -> set[str]:
    """Return the names of the files, those of descriptions without the machine that a distribution adds."""
    every = {entry["target"].rpartition("/")[2].replace(".x86_64.json", ".json") for entry in made["entries"]}
    assert len(every) == len(made["entries"])
    return every


def planned_here(root: Path, given: Given | None = None, version: str | None = None) -> Plan:
    files = discover(root, given)
    return plan(files, driver_version(root, files, version))


def reasons(made: Plan) -> dict[str, str]:
    return {each.path.rpartition("/")[2]: each.reason for each in made.warnings}


@pytest.mark.parametrize("lay_out", [*NAMED.values(), *UNNAMED.values()], ids=[*NAMED, *UNNAMED])
def test_every_layout_gives_all_files_of_the_drivers_own_list(
    tmp_path: Path, lay_out: Callable[[Path], None]
) -> None:
    lay_out(tmp_path)
    made = planned(tmp_path)
    assert names(made) == TAKEN
    assert made["version"] == V
    own = made["own_list"]
    assert (own["listed"], own["taken"], len(own["left"]), own["absent"], own["refused"], own["more"]) == (
        *(62, 49, 13),
        *([], [], 0),
    )
    assert not [each for each in made["excluded"] if each["warned"]]
    assert made["missing"] == []
    files = discover(tmp_path)
    assert not {file.path for file in files.libraries} & {file.path for file in files.programs}


def test_documents_have_the_numbers_of_each_distribution() -> None:
    text = (Path(__file__).parents[3] / "docs/volumes.md").read_text()
    rows = [
        line.strip("| ").split(" | ") for line in text.splitlines() if line.endswith("| 48 | 62 | 49 | 13 |")
    ]
    assert [row[0] for row in rows] == list(NAMED)


def test_plan_prints_the_numbers_beside_the_drivers_own_list(tmp_path: Path) -> None:
    NAMED["Talos"](tmp_path)
    text = call("plan", "--root", str(tmp_path)).stdout
    assert f"driver {V}: 48 files" in text
    assert (
        "of the 62 files that the driver lists for containers 49 are taken, 13 serve the host alone, "
        "0 are not on this host; 0 more are taken" in text
    )
    (tmp_path / f"usr/local/glibc/usr/lib/libnvidia-ml.so.{V}").unlink()
    assert f"1 are not on this host (libnvidia-ml.so.{V})" in call("plan", "--root", str(tmp_path)).stdout


def test_a_volume_of_each_layout_loads_what_descriptions_name(tmp_path: Path) -> None:
    """Descriptions with paths of the host are written again; the rest are the host's own files."""
    for number, lay_out in enumerate((NAMED["NixOS"], NAMED["Fedora, RHEL"], NAMED["Debian"])):
        root = tmp_path / str(number)
        lay_out(root)
        built = make(root / "store", root)
        assert verify(built.volume) == ()
        for path in (built.path / "share").rglob("*.json"):
            library = json.loads(path.read_text())["ICD"]["library_path"]
            assert (built.path / "lib64" / library).is_file(), path
        assert (built.path / "share/nvidia/nvoptix.bin").read_bytes() == b"weights"
        gbm = built.path / "lib64/gbm/nvidia-drm_gbm.so"
        assert gbm.resolve() == built.path / f"lib64/libnvidia-allocator.so.{V}"
        assert ("rewritten" in built.how) == (number < 2)
        assert not make(root / "store", root).new, "it is as planned"


@pytest.mark.parametrize("way", ["option", "variable"])
def test_directories_are_named_by_options_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    plant(tmp_path, Layout(f"{GIVEN}/a", f"{GIVEN}/b", f"{GIVEN}/share"))
    assert "--driver-library-path" in call("plan", "--root", str(tmp_path), code=73).output
    if way == "variable":
        monkeypatch.setenv("MESOS_GPU_DRIVER_LIBRARY_PATH", f"{GIVEN}/a")
        monkeypatch.setenv("MESOS_GPU_DRIVER_PROGRAM_PATH", f"{GIVEN}/b")
        assert names(planned(tmp_path)) == TAKEN
        return
    made = planned(tmp_path, driver_library_path=f"{GIVEN}/a", driver_program_path=f"{GIVEN}/b")
    assert names(made) == TAKEN
    built = call(
        *("build", "--root", str(tmp_path), "--store", str(tmp_path / "store")),
        *("--driver-library-path", f"{GIVEN}/a", "--driver-program-path", f"{GIVEN}/b"),
    )
    assert "48 files" in built.stdout


def test_an_unpacked_installer_is_one_directory(tmp_path: Path) -> None:
    flat(tmp_path, GIVEN)
    assert names(planned(tmp_path, driver_library_path=GIVEN)) == TAKEN


def test_directories_given_precede_another_driver_of_the_host(tmp_path: Path) -> None:
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"), OLD, kernel=None)
    plant(tmp_path, Layout(f"{GIVEN}/lib", f"{GIVEN}/nothing", f"{GIVEN}/share"), kernel=None)
    made = planned_here(tmp_path, Given((f"{GIVEN}/lib",)))
    assert made.version == V
    assert {entry.source for entry in made.entries if entry.target.startswith("lib64/")} == {
        f"{GIVEN}/lib/{name.format(v=V)}" for name in LIBRARIES if name.format(v=V) in TAKEN
    }
    told = {each.path: each.reason for each in made.excluded}
    assert told["/usr/bin/nvidia-smi"] == f"it is of driver {OLD}, not {V}"
    assert {entry.source for entry in made.entries if entry.target.startswith("share/")} == {
        path for path in (entry.source for entry in made.entries) if path.startswith(f"{GIVEN}/share/")
    }


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Given(("/no/such",)), "--driver-library-path (MESOS_GPU_DRIVER_LIBRARY_PATH) names /no/such"),
        (Given(("usr/lib64",)), "names usr/lib64"),
        (Given((), ("/usr/bin/nvidia-smi",)), "--driver-program-path (MESOS_GPU_DRIVER_PROGRAM_PATH) names"),
        (Given(("/usr/bin",)), "there is no library of a driver in /usr/bin"),
        (Given((), ("/usr/lib64",)), "there is no program of a driver in /usr/lib64"),
    ],
)
def test_wrong_directories_are_refused_by_name(tmp_path: Path, given: Given, text: str) -> None:
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"))
    with pytest.raises(NotFound) as raised:
        discover(tmp_path, given)
    assert text in raised.value.what
    assert "director" in raised.value.remedy


def test_libraries_are_accepted_by_evidence_and_not_by_name(tmp_path: Path) -> None:
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"))
    new = {
        f"libnvidia-brandnew.so.{V}": None,
        f"libnvquantum.so.{V}": "libnvquantum.so.1",
        "libnvidia-jit71.so.4": "libnvidia-jit71.so.4",
        "libnvidia-egl-moon.so.1.2.3": "libnvidia-egl-moon.so.1",
        "libnvidia-fourth.so.2": f"libnvidia-fourth.so.{V}",
    }
    for name, soname in new.items():
        write(tmp_path, f"/usr/lib64/{name}", shared_object(soname=soname))
    made = planned_here(tmp_path)
    assert {f"lib64/{name}" for name in new} <= {entry.target for entry in made.entries}
    assert {"lib64/libnvquantum.so.1", "lib64/libnvidia-egl-moon.so.1"} <= {
        link.target for link in made.links
    }
    assert made.warnings == ()


def test_files_of_the_driver_that_are_left_out_are_warnings_with_reasons(tmp_path: Path) -> None:
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"))
    lib = tmp_path / "usr/lib64"
    whole = (lib / f"libnvcuvid.so.{V}").read_bytes()
    (lib / f"libnvcuvid.so.{V}").write_bytes(whole[:-8])
    (lib / f"libnvoptix.so.{V}").write_text("INPUT(libnvoptix.so.1)")
    write(tmp_path, f"/usr/lib64/libnvidia-arm.so.{V}", shared_object(machine="aarch64"))
    write(tmp_path, "/usr/lib64/libnvidia-odd.so.3", shared_object(soname="libother.so.3"))
    write(tmp_path, "/usr/lib64/libnvidia-mute.so.3", shared_object())
    write(tmp_path, "/usr/bin/nvidia-next", shared_object(content=f"nvidia-next {V}".encode()))
    write(tmp_path, "/usr/share/vulkan/icd.d/nvidia_other.json", b'{"ICD": {"library_path": "libGone.so.1"}}')
    write(tmp_path, "/usr/share/vulkan/icd.d/nvidia_deep.json", b"[" * 100_000)
    deep = b'{"a":' * 990 + b'{"library_path": "/x/libcuda.so.1"}' + b"}" * 990
    write(tmp_path, "/usr/share/vulkan/icd.d/nvidia_nested.json", deep)
    # Not of this driver, or taken under another name, so no warnings:
    (lib / "libnvidia-encode.so").write_text("INPUT(libnvidia-encode.so.1)")
    write(
        tmp_path, "/usr/share/vulkan/icd.d/nvidia:of:two.json", b'{"ICD": {"library_path": "libcuda.so.1"}}'
    )
    write(tmp_path, f"/usr/lib64/libnvidia-encode.so.{OLD}", shared_object(soname="libnvidia-encode.so.1"))
    write(tmp_path, "/opt/far/libnvidia-far.so.1", shared_object(soname="libnvidia-far.so.1"))
    link_to(tmp_path, "/usr/lib/libnvidia-far.so.1", "/opt/far/libnvidia-far.so.1")
    made = planned_here(tmp_path)
    told = reasons(made)
    assert told.keys() == {
        *(f"libnvcuvid.so.{V}", f"libnvoptix.so.{V}", f"libnvidia-arm.so.{V}", "libnvidia-odd.so.3"),
        *(
            "libnvidia-mute.so.3",
            "nvidia-next",
            "nvidia_other.json",
            "nvidia_deep.json",
            "nvidia_nested.json",
        ),
    }
    assert "cut off" in told[f"libnvcuvid.so.{V}"]
    assert told["libnvidia-odd.so.3"] == "its SONAME libother.so.3 does not confirm its name"
    assert told["nvidia_other.json"] == "it names libGone.so.1, which is not taken"
    every = {each.path: each.reason for each in made.excluded}
    assert "lies apart" in every["/opt/far/libnvidia-far.so.1"]
    printed = call("plan", "--root", str(tmp_path)).stderr
    assert (
        f"not included, although it belongs to this driver: /usr/lib64/libnvidia-arm.so.{V}: it is for aarch64"
        in printed
    )


def test_two_drivers_side_by_side_have_files_of_their_own(tmp_path: Path) -> None:
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"), OLD, kernel=None)
    plant(tmp_path, Layout("/opt/nvidia/580/lib64", "/opt/nvidia/580/bin", "/opt/nvidia/580/share"))
    for version, home in (
        (OLD, "/usr/bin"),
        (V, "/opt/nvidia/580/bin"),
    ):  # as NVIDIA's, it does not say its version
        write(tmp_path, f"{home}/nvidia-debugdump", shared_object(content=version[:3].encode()), 0o755)
    for version, home in ((V, "/opt/nvidia/580/"), (OLD, "/usr/")):
        made = planned_here(tmp_path, version=version)
        assert len(made.entries) == len(TAKEN)
        libraries = {entry.source for entry in made.entries if entry.target.startswith("lib64/")}
        assert {path for path in libraries if not path.startswith(home)} == set()
        data = {entry.source for entry in made.entries if entry.target.startswith("share/")}
        assert all(path.startswith(f"{home}share/") for path in data)
        programs = {entry.source for entry in made.entries if entry.target.startswith("bin/")}
        assert programs == {f"{home}bin/{name}" for name in PROGRAMS[:5]}


def test_libraries_without_versions_in_their_names_are_known_by_their_content(tmp_path: Path) -> None:
    """Copied with links followed, as some images of hosts are made: `cp -L`."""
    plant(tmp_path, Layout("/opt/nvidia/lib", "/opt/nvidia/bin"), kernel=None)
    lib = tmp_path / "opt/nvidia/lib"
    for path in [*lib.iterdir()]:
        if path.is_symlink() and path.resolve() != path:
            target = lib / os.readlink(path).rpartition("/")[2]
            path.unlink()
            shutil.copy(target, path)
    for path in [*lib.iterdir()]:
        if path.name.endswith((f"libcuda.so.{V}", f"libnvidia-ml.so.{V}")):
            path.unlink()
    made = planned_here(tmp_path)
    assert made.version == V
    assert {"lib64/libcuda.so.1", "lib64/libnvidia-ml.so.1"} <= {entry.target for entry in made.entries}
    assert made.missing == ()


PLATFORMS = {
    "WSL 2": (
        "/usr/lib/wsl/lib/libcuda.so.1.1",
        "/usr/lib/wsl/lib/libnvidia-ml.so.1",
        "/usr/lib/wsl/drivers/x/y",
    ),
    "Jetson": (
        *("/etc/nv_tegra_release", "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1"),
        "/usr/lib/aarch64-linux-gnu/nvidia/libnvidia-glcore.so.540.4.0",
    ),
}


@pytest.mark.parametrize(("platform", "paths"), PLATFORMS.items(), ids=PLATFORMS)
def test_platforms_with_drivers_of_their_own_are_not_supported(
    tmp_path: Path, platform: str, paths: tuple[str, ...]
) -> None:
    for path in paths:
        machine = "aarch64" if "aarch64" in path else "x86_64"
        write(tmp_path, path, shared_object(machine=machine, soname=path.rpartition("/")[2]))
    with pytest.raises(Unavailable, match=f"^{platform} is not supported: its "):
        planned_here(tmp_path)
    assert f"{platform} is not supported" in call("plan", "--root", str(tmp_path), code=69).output
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"), kernel=V)
    assert planned_here(tmp_path).version == V, "a driver of the usual kind beside it"


def test_the_remedy_fits_the_fault(tmp_path: Path) -> None:
    write(tmp_path, "/sys/module/nvidia/version", f"{V}\n".encode())
    said = call("plan", "--root", str(tmp_path), code=73).output
    assert f"the kernel module is of driver {V}, but its libraries were not found" in said
    assert "--driver-library-path" in said
    assert "reboot" not in said
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"), OLD, kernel=None)
    said = call("plan", "--root", str(tmp_path), code=73).output
    assert f"if driver {OLD} was installed after the module was loaded" in said
    assert "reload the module, or reboot" in said
    assert f"if the libraries of {V} are in another directory: name their directory" in said


def test_hostile_trees_neither_lead_out_nor_stop_a_search(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    plant(root, Layout("/opt/nvidia/lib64", "/opt/nvidia/bin", "/opt/nvidia/share"))
    write(outside, f"/libnvidia-secret.so.{V}", shared_object(soname="libnvidia-secret.so.1"))
    write(outside, "/nvidia_secret.json", b'{"ICD": {"library_path": "libcuda.so.1"}}')
    lib, share = root / "opt/nvidia/lib64", root / "opt/nvidia/share"
    (lib / f"libnvidia-out.so.{V}").symlink_to(outside / f"libnvidia-secret.so.{V}")
    (lib / f"libnvidia-up.so.{V}").symlink_to(f"../../../../../../..{outside}/libnvidia-secret.so.{V}")
    (lib / f"libnvidia-loop.so.{V}").symlink_to(f"libnvidia-loop.so.{V}")
    (share / "vulkan/icd.d/nvidia_out.json").symlink_to(outside / "nvidia_secret.json")
    secret = root / "etc/shadow"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("root:secret")
    (share / "nvidia/nvoptix.bin").unlink()
    link_to(root, "/opt/nvidia/share/nvidia/nvoptix.bin", "/etc/shadow")
    (root / "opt/nvidia/self").symlink_to(".")
    (root / "opt/nvidia/all").symlink_to("/")
    os.mkfifo(lib / f"libnvidia-pipe.so.{V}")
    os.mkfifo(share / "vulkan/icd.d/nvidia_pipe.json")
    (lib / f"libnvidia-directory.so.{V}").mkdir()
    with (lib / f"libnvidia-huge.so.{V}").open("wb") as file:
        file.write(shared_object())
        file.truncate(1 << 40)
    (share / "vulkan/icd.d/nvidia_huge.json").write_bytes(b" " * (2 << 20))
    write(root, f"/opt/nvidia/lib64/libnvidia-name.so.{V}", shared_object(soname="../../bin/sh"))
    for depth in range(30):
        (root / "opt/nvidia-deep" / "/".join("d" * depth)).mkdir(parents=True, exist_ok=True)
    made = planned_here(root)
    every = {entry.target.rpartition("/")[2] for entry in made.entries}
    assert every == (TAKEN | {f"libnvidia-name.so.{V}"}) - {"nvoptix.bin"}
    assert all("secret" not in entry.source for entry in made.entries)
    assert all(".." not in link.target for link in made.links)
    told = reasons(made)
    assert told[f"libnvidia-huge.so.{V}"] == "it cannot be read: it is larger than 4 GiB"
    assert told[f"libnvidia-pipe.so.{V}"] == told[f"libnvidia-directory.so.{V}"] == "it is no regular file"
    assert told[f"libnvidia-loop.so.{V}"] == "it leads nowhere"
    built = make(tmp_path / "store", root)
    assert verify(built.volume) == ()


def test_programs_that_need_the_loader_of_their_own_host_are_named(tmp_path: Path) -> None:
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"))
    shutil.copy("/bin/sleep", tmp_path / "usr/bin/nvidia-smi")
    data = (tmp_path / "usr/bin/nvidia-smi").read_bytes()
    assert planned_here(tmp_path).missing == ()
    write(tmp_path, "/usr/bin/nvidia-smi", data.replace(b"/lib64/ld-linux", b"/nix/s/ld-linux"), 0o755)
    (said,) = planned_here(tmp_path).missing
    assert said.startswith("/nix/s/ld-linux")
    assert said.endswith("is not in images, which bin/nvidia-smi needs to start")


@root_only
@pytest.mark.parametrize("place", ["/srv/nvidia-datasets", "/opt/nvidia-datasets", "/usr/local/nvidia/data"])
def test_files_that_users_can_change_are_left_out(tmp_path: Path, place: str) -> None:
    """A library and a program of a user, with a SONAME that would replace the one of each image."""
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"))
    (tmp_path / "usr/bin/nvidia-smi").unlink()
    evil = {f"libx.so.{V}": "libstdc++.so.6", "nvidia-smi": None, "nvidia_icd.json": None}
    data = {name: shared_object(soname=soname, content=V.encode()) for name, soname in evil.items()}
    data["nvidia_icd.json"] = b'{"ICD": {"library_path": "libcuda.so.1"}}'
    for name in data:
        write(tmp_path, f"{place}/{name}", data[name], 0o755)
        os.chown(tmp_path / place[1:] / name, 65534, 65534)
    (tmp_path / place[1:]).chmod(0o1777)
    link_to(tmp_path, f"/usr/lib64/libx.so.{V}", f"{place}/libx.so.{V}")
    made = planned_here(tmp_path)
    assert not [entry for entry in made.entries if entry.source.startswith(place)]
    assert "lib64/libstdc++.so.6" not in {link.target for link in made.links}
    assert f"{place}/libx.so.{V} belongs to user 65534, not to root" in reasons(made)[f"libx.so.{V}"]
    built = make(tmp_path / "store", tmp_path)
    assert {path.stat().st_uid for path in built.path.rglob("*")} == {os.geteuid()}


CHANGES: dict[str, tuple[str, int, int]] = {
    "file of a user": ("usr/lib64/libnvcuvid.so.{v}", 65534, 0o644),
    "file of a group": ("usr/lib64/libnvcuvid.so.{v}", 0, 0o664),
    "file of all": ("usr/lib64/libnvcuvid.so.{v}", 0, 0o646),
    "description of a user": ("usr/share/glvnd/egl_vendor.d/10_nvidia.json", 65534, 0o644),
    "program of a group": ("usr/bin/nvidia-debugdump", 0, 0o775),
}


@root_only
@pytest.mark.parametrize(("path", "owner", "mode"), CHANGES.values(), ids=CHANGES)
def test_a_file_that_is_not_roots_alone_is_a_warning(
    tmp_path: Path, path: str, owner: int, mode: int
) -> None:
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"))
    file = tmp_path / path.format(v=V)
    os.chown(file, owner, 0)
    file.chmod(mode)
    made = planned_here(tmp_path)
    assert f"/{path.format(v=V)}" not in {entry.source for entry in made.entries}
    assert reasons(made).keys() == {file.name}
    assert "only files that root alone can change are taken" in reasons(made)[file.name]


@root_only
@pytest.mark.parametrize(("owner", "mode"), [(65534, 0o755), (0, 0o775), (0, 0o757), (0, 0o1777)])
@pytest.mark.parametrize("above", ["srv", "srv/drivers/580/a"])
def test_a_named_directory_that_users_can_change_is_refused(
    tmp_path: Path, above: str, owner: int, mode: int
) -> None:
    plant(tmp_path, Layout(f"{GIVEN}/a", f"{GIVEN}/b", f"{GIVEN}/share"))
    assert planned_here(tmp_path, Given((f"{GIVEN}/a",))).version == V
    os.chown(tmp_path / above, owner, 0)
    (tmp_path / above).chmod(mode)
    with pytest.raises(Conflict, match=f"--driver-library-path .* names {GIVEN}/a, and /{above} ") as raised:
        discover(tmp_path, Given((f"{GIVEN}/a",)))
    assert "chmod go-w" in raised.value.remedy


@root_only
def test_a_driver_of_which_users_can_change_the_directory_is_refused_with_the_reason(tmp_path: Path) -> None:
    plant(tmp_path, Layout("/opt/nvidia/lib64", "/opt/nvidia/bin"))
    (tmp_path / "opt/nvidia/lib64").chmod(0o777)
    said = call("plan", "--root", str(tmp_path), code=73).output
    assert "/opt/nvidia/lib64 can be written by others than root (mode 0777)" in said


def test_files_of_others_are_copied_and_never_linked(tmp_path: Path) -> None:
    plant(tmp_path, Layout("/usr/lib64", "/usr/bin"))
    made = planned_here(tmp_path)
    (tmp_path / f"usr/lib64/libcuda.so.{V}").chmod(0o666)  # after the plan was made
    built = build(tmp_path / "store", tmp_path, made)
    status = (built.path / f"lib64/libcuda.so.{V}").stat()
    assert (status.st_nlink, status.st_mode & 0o777) == (1, 0o644)
    assert built.how["hard link"] == len(built.volume.files) - 1
