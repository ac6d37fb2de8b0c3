"""Whatever lies on a host: a plan is the same each time, stays inside the root, and names nothing twice."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.errors import NotFound
from tests.doubles.elf_files import shared_object
from tests.property.examples import examples
from volumes.build import build
from volumes.discover import discover
from volumes.manifest import plan
from volumes.model import DriverFiles, File
from volumes.roots import Root
from volumes.store import verify

V, OTHER = "535.261.03", "550.54.14"
DIRECTORIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/x86_64-linux-gnu/tls",
    "/usr/lib/i386-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/bin",
    "/usr/sbin",
    "/opt/nvidia/lib64",
    "/usr/share/vulkan/icd.d",
)
NAMES = (
    *(f"{stem}.so{end}" for stem in ("libcuda", "libnvidia-ml", "libnvidia-tls", "libnvidia-odd")
      for end in ("", ".1", f".{V}", f".{OTHER}")),
    "libGL.so.1", "libGL.so.1.7.0", f"libGL.so.{V}", "libGLdispatch.so.0", "libnvidia-egl-wayland.so.1.1.7",
    "libcudart.so.12", "libnvidia-container.so.1", "nvidia-smi", "nvidia-modprobe", "nvidia-cuda-mps-server",
    "nvidia_icd.json", "libnvidia-odd.so.2",
)  # fmt: skip
SONAMES = (
    None,
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    f"libnvidia-tls.so.{V}",
    "libGL.so.1",
    "../../etc/x",
    "a/b",
)
_ICD = b'{"ICD": {"library_path": "/usr/lib64/libcuda.so.1"}}'
NEEDED = ((), ("libGLdispatch.so.0",), (f"libnvidia-odd.so.{V}",), (f"libnvidia-glcore.so.{V}", "libc.so.6"))

places = st.builds("{}/{}".format, st.sampled_from(DIRECTORIES), st.sampled_from(NAMES))
files = st.builds(
    shared_object,
    machine=st.sampled_from(["x86_64", "x86_64", "aarch64"]),
    soname=st.sampled_from(SONAMES),
    needed=st.sampled_from(NEEDED),
    abi=st.sampled_from([None, (2, 2, 5), (2, 3, 99)]),
) | st.builds(shared_object, machine=st.just("i686"), soname=st.sampled_from(SONAMES))
links = st.one_of(
    places,
    st.builds("../../../../../../../../..{}".format, places),
    st.sampled_from(["/etc/passwd", "/proc/self/root/etc/passwd", "../../../../../../../etc", ".", "/"]),
    st.sampled_from(NAMES),
)
trees = st.dictionaries(places, files | links | st.just(b"#!/bin/sh\n") | st.just(_ICD), max_size=25)


def lay_out(root: Path, tree: Mapping[str, bytes | str]) -> None:
    for path, content in tree.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            place.symlink_to(content)
        else:
            place.write_bytes(content)


@examples(35, 80)
@given(trees)
def test_a_plan_is_the_same_each_time_and_stays_inside_the_root(tree: Mapping[str, bytes | str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root, store = Path(directory, "root"), Path(directory, "store")
        root.mkdir()
        lay_out(root, tree)
        files = discover(root)
        assert discover(root) == files
        try:
            made = plan(files, V)
        except NotFound:
            assert not any(file.name.endswith(f".so.{V}") and file.elf for file in files.libraries)
            assert not any(
                (file.elf.soname or "").endswith(f".so.{V}") for file in files.libraries if file.elf
            )
            return
        assert plan(files, V) == made

        sources = {entry.source for entry in made.entries}
        for source in sources:
            assert Root(root).resolve(source) == source
            assert os.path.realpath(root / source.lstrip("/")).startswith(f"{os.path.realpath(root)}/")
        examined = {file.path for file in _all(files)} | {each.path for each in files.data}
        assert examined == sources | ({each.path for each in made.excluded} & examined)
        assert not sources & {each.path for each in made.excluded}

        names = [entry.target for entry in made.entries] + [link.target for link in made.links]
        assert len(names) == len(set(names)), "two sources for one name"
        for name in names:
            top, *_, last = name.split("/")
            assert top in ("bin", "lib", "lib64", "share")
            assert os.path.normpath(name) == name
            assert last not in ("", ".", "..")
        assert {link.file for link in made.links} <= {entry.target for entry in made.entries}

        first = build(store, root, made)
        assert first.new
        assert verify(first.volume) == ()
        assert not build(store, root, plan(discover(root), V)).new


def _all(files: DriverFiles) -> tuple[File, ...]:
    return (*files.libraries, *files.programs)
