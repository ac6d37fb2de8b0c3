"""Driver 580 in the layouts of distributions: the same small files, each where a distribution has them."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.doubles.elf_files import ldconfig, shared_object

V: Final = "580.65.06"
#: File and SONAME of each library; "{v}" is the driver's version. Names as of NVIDIA's installer.
LIBRARIES: Final[Mapping[str, str | None]] = {
    **{
        f"{stem}.so.{{v}}": f"{stem}.so.{number}"
        for stem, number in (
            ("libcuda", 1), ("libcudadebugger", 1), ("libnvcuvid", 1), ("libnvidia-allocator", 1),
            ("libnvidia-cfg", 1), ("libnvidia-encode", 1), ("libnvidia-fbc", 1), ("libnvidia-ml", 1),
            ("libnvidia-ngx", 1), ("libnvidia-nvvm", 4), ("libnvidia-opencl", 1), ("libnvidia-opticalflow", 1),
            ("libnvidia-ptxjitcompiler", 1), ("libnvidia-sandboxutils", 1), ("libnvidia-vksc-core", 1),
            ("libnvoptix", 1), ("libvdpau_nvidia", 1), ("libEGL_nvidia", 0), ("libGLX_nvidia", 0),
            ("libGLESv1_CM_nvidia", 1), ("libGLESv2_nvidia", 2),
        )
    },
    **{
        f"{stem}.so.{{v}}": f"{stem}.so.{{v}}"
        for stem in (
            "libnvidia-eglcore", "libnvidia-glcore", "libnvidia-glsi", "libnvidia-glvkspirv", "libnvidia-gpucomp",
            "libnvidia-pkcs11", "libnvidia-pkcs11-openssl3", "libnvidia-rtcore", "libnvidia-tls",
        )
    },
    "libnvidia-present.so.{v}": None,
    "libnvidia-nvvm70.so.4": "libnvidia-nvvm70.so.4",
    "libnvidia-egl-gbm.so.1.1.2": "libnvidia-egl-gbm.so.1",
    "libnvidia-egl-wayland.so.1.1.19": "libnvidia-egl-wayland.so.1",
    "libnvidia-egl-xcb.so.1.0.3": "libnvidia-egl-xcb.so.1",
    "libnvidia-egl-xlib.so.1.0.3": "libnvidia-egl-xlib.so.1",
    "libnvidia-api.so.1": "libnvidia-api.so.1",
    "libnvidia-gtk3.so.{v}": None,
    "libnvidia-wayland-client.so.{v}": None,
    "libglxserver_nvidia.so.{v}": "libglxserver_nvidia.so",
}  # fmt: skip
PROGRAMS: Final = (
    "nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
    "nvidia-modprobe", "nvidia-settings", "nvidia-xconfig", "nvidia-ngx-updater", "nvidia-powerd", "nvidia-pcc",
)  # fmt: skip
#: Descriptions below a directory of data, and the library that each names.
DESCRIPTIONS: Final = {
    "glvnd/egl_vendor.d/10_nvidia.json": "libEGL_nvidia.so.0",
    "egl/egl_external_platform.d/10_nvidia_wayland.json": "libnvidia-egl-wayland.so.1",
    "egl/egl_external_platform.d/15_nvidia_gbm.json": "libnvidia-egl-gbm.so.1",
    "egl/egl_external_platform.d/20_nvidia_xcb.json": "libnvidia-egl-xcb.so.1",
    "egl/egl_external_platform.d/20_nvidia_xlib.json": "libnvidia-egl-xlib.so.1",
    "vulkan/icd.d/nvidia_icd.json": "libGLX_nvidia.so.0",
    "vulkan/implicit_layer.d/nvidia_layers.json": "libGLX_nvidia.so.0",
}
OPTIX, LIST = "nvidia/nvoptix.bin", "nvidia/files.d/sandboxutils-filelist.json"
#: Files that serve the host alone.
_OF_HOST: Final = (
    "libnvidia-api.so.1", "libnvidia-gtk3.so.{v}", "libnvidia-wayland-client.so.{v}", "libglxserver_nvidia.so.{v}",
    "libnvidia-vksc-core.so.{v}", *PROGRAMS[5:],
)  # fmt: skip
#: Files of a volume, and those of the driver's own list that a volume has and that serve the host.
TAKEN: Final = frozenset(
    name.format(v=V)
    for name in (*LIBRARIES, *PROGRAMS, *(path.rpartition("/")[2] for path in DESCRIPTIONS), "nvoptix.bin")
    if name not in _OF_HOST
)


def listed(v: str = V) -> str:
    """Return the driver's own list, as NVIDIA's installer brings it: a file once for each of its purposes."""
    rows = [("LIB", name.format(v=v)) for name in LIBRARIES] + [("BINARY", name) for name in PROGRAMS]
    rows += [("JSON", path.rpartition("/")[2]) for path in DESCRIPTIONS] + [("OTHER", "nvoptix.bin")]
    rows += [("FIRMWARE", "firmware/gsp_ga10x.bin"), ("FIRMWARE", "firmware/gsp_tu10x.bin")]
    rows += [("LIB", f"libcuda.so.{v}"), ("SYMLINK", "nvidia-drm_gbm.so")]
    return json.dumps([{"name": name, "type": kind, "category": ["cuda"]} for kind, name in rows])


@dataclass(frozen=True, slots=True)
class Layout:
    """Directories of a distribution.

    Attributes:
        libraries: Directory of the libraries' files.
        programs: Directory of the programs' files.
        data: Directory of data.
        seen: Directory with links to the libraries; None if they are in the directory of the files.
        started: Directory with links to the programs; None if they are in the directory of the files.
        described: Directory that descriptions name; None if they name libraries alone.
    """

    libraries: str
    programs: str
    data: str = "/usr/share"
    seen: str | None = None
    started: str | None = None
    described: str | None = None


def plant(root: Path, layout: Layout, v: str = V, kernel: str | None = V) -> None:
    """Put a driver below a root, as a distribution has it."""
    for name, soname in _libraries(v):
        data = shared_object(soname=soname, content=f"{name} of {v}\n".encode(), glibc=(2, 17))
        write(root, f"{layout.libraries}/{name}", data)
        names = {name} if layout.seen is not None else set()
        for link in (names | {soname or name}) - ({name} if layout.seen is None else set()):
            link_to(root, f"{layout.seen or layout.libraries}/{link}", f"{layout.libraries}/{name}")
    for name in PROGRAMS:
        data = shared_object(needed=("libc.so.6",), content=f"{name} of {v}\n".encode())
        write(root, f"{layout.programs}/{name}", data, 0o755)
        if layout.started is not None:
            link_to(root, f"{layout.started}/{name}", f"{layout.programs}/{name}")
    for path, library in DESCRIPTIONS.items():
        library = f"{layout.described}/{library}" if layout.described else library
        text = json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": library}})
        write(root, f"{layout.data}/{path}", text.encode())
    write(root, f"{layout.data}/{OPTIX}", b"weights")
    write(root, f"{layout.data}/{LIST}", listed(v).encode())
    if kernel is not None:
        text = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {kernel}  Release Build\n"
        write(root, "/proc/driver/nvidia/version", text.encode())


def _libraries(v: str) -> Iterator[tuple[str, str | None]]:
    for name, soname in LIBRARIES.items():
        yield name.format(v=v), soname and soname.format(v=v)


def write(root: Path, path: str, data: bytes, mode: int = 0o644) -> None:
    """Write a file below a root, with the directories above it."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    place.chmod(mode)


def link_to(root: Path, path: str, target: str) -> None:
    """Make a link below a root, as of alternatives: absolute, as seen from the root."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def _debian(root: Path) -> None:
    triplet = "/usr/lib/x86_64-linux-gnu"
    plant(
        root, Layout(f"{triplet}/nvidia/current", "/usr/lib/nvidia/current", seen=triplet, started="/usr/bin")
    )
    write(root, "/etc/ld.so.conf", f"{triplet}\n".encode())
    ldconfig(root)


def _fedora(root: Path) -> None:
    plant(root, Layout("/usr/lib64", "/usr/bin", described="/usr/lib64"))
    icds = root / "usr/share/vulkan/icd.d"
    (icds / "nvidia_icd.json").rename(icds / "nvidia_icd.x86_64.json")
    link_to(root, "/lib64", "/usr/lib64")


def _nixos(root: Path) -> None:
    store = f"/nix/store/0c0ffee0-nvidia-x11-{V}-6.12.40"
    layout = Layout(f"{store}/lib", f"{store}-bin/bin", f"{store}/share", described=f"{store}/lib")
    plant(root, layout)
    for name in (root / store[1:] / "lib").iterdir():
        link_to(root, f"/nix/store/1c0ffee1-graphics-drivers/lib/{name.name}", f"{store}/lib/{name.name}")
    link_to(root, "/nix/store/1c0ffee1-graphics-drivers/share", f"{store}/share")
    link_to(root, "/run/opengl-driver", "/nix/store/1c0ffee1-graphics-drivers")
    link_to(root, "/nix/store/2c0ffee2-system-path/bin", f"{store}-bin/bin")
    link_to(root, "/run/current-system/sw", "/nix/store/2c0ffee2-system-path")
    (root / "nix/store").chmod(0o1775)  # as NixOS has it: programs that build add names


def _flatcar(root: Path) -> None:
    plant(root, Layout(f"/opt/nvidia/{V}/lib64", f"/opt/nvidia/{V}/bin", f"/opt/nvidia/{V}/share"))
    link_to(root, "/opt/nvidia/current", V)
    link_to(root, f"/opt/nvidia/{V}/lib64/gbm/nvidia-drm_gbm.so", f"../libnvidia-allocator.so.{V}")


def _bottlerocket(root: Path) -> None:
    inner = root / "x86_64-bottlerocket-linux-gnu/sys-root"
    plant(inner, Layout("/usr/lib/nvidia/tesla", "/usr/libexec/nvidia/tesla/bin"), kernel=None)
    link_to(root, "/usr", "x86_64-bottlerocket-linux-gnu/sys-root/usr")
    write(root, "/sys/module/nvidia/version", f"{V}\n".encode())


def _cos(root: Path) -> None:
    home = "/home/kubernetes/bin/nvidia"
    plant(root, Layout(f"{home}/lib64", f"{home}/bin", home))


def _arch(root: Path) -> None:
    plant(root, Layout("/usr/lib", "/usr/bin"))
    link_to(root, "/lib", "usr/lib")
    link_to(root, "/usr/lib64", "lib")


#: By distribution: those that documents name.
NAMED: Final[Mapping[str, Callable[[Path], None]]] = {
    "Debian": _debian,
    "Ubuntu -server": lambda root: plant(
        root, Layout("/usr/lib/nvidia/580-server", "/usr/lib/nvidia/580-server/bin")
    ),
    "Fedora, RHEL": _fedora,
    "Arch, openSUSE": _arch,
    "NixOS": _nixos,
    "Talos": lambda root: plant(
        root, Layout("/usr/local/glibc/usr/lib", "/usr/local/bin", "/usr/local/share")
    ),
    "Flatcar": _flatcar,
    "Bottlerocket": _bottlerocket,
    "Container-Optimized OS": _cos,
}


def _by_program(root: Path) -> None:
    plant(root, Layout("/acme/r580/lib", "/acme/r580/bin", "/acme/r580/share", started="/usr/bin"))


def _by_conf(root: Path) -> None:
    plant(root, Layout("/acme/gpu/lib", "/acme/gpu/bin", "/acme/gpu/share"))
    write(root, "/etc/ld.so.conf", b"include ld.so.conf.d/*.conf\n")
    write(root, "/etc/ld.so.conf.d/acme.conf", b"# of us\n/acme/gpu/lib\n")


def _by_cached_link(root: Path) -> None:
    plant(root, Layout("/data/images/7f/gpu", "/data/images/7f/sbin", "/data/images/7f/share"))
    link_to(root, "/usr/lib64/libcuda.so.1", f"/data/images/7f/gpu/libcuda.so.{V}")


def _in_container(root: Path) -> None:
    plant(root / "run/nvidia/driver", Layout("/usr/lib/x86_64-linux-gnu", "/usr/bin"), kernel=None)
    write(root, "/sys/module/nvidia/version", f"{V}\n".encode())


def _versioned_tree(root: Path) -> None:
    plant(
        root,
        Layout(
            f"/var/opt/nvidia-{V}/usr/lib64", f"/var/opt/nvidia-{V}/usr/bin", f"/var/opt/nvidia-{V}/usr/share"
        ),
    )


#: Layouts that no list here names.
UNNAMED: Final[Mapping[str, Callable[[Path], None]]] = {
    "found by a program": _by_program,
    "found by the loader's configuration": _by_conf,
    "found by a link of one library": _by_cached_link,
    "a driver container": _in_container,
    "a tree with a version": _versioned_tree,
}


def flat(root: Path, directory: str) -> None:
    """Put all files of a driver into one directory, as NVIDIA's installer unpacks them."""
    plant(root, Layout(directory, directory, f"{directory}/share"))
    for path in [*(root / directory[1:] / "share").rglob("*")]:
        if path.is_file():
            path.rename(root / directory[1:] / path.name)
