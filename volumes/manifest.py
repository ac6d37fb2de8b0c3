"""Which files of a host belong into its driver volume, under which names, and why the others do not. Pure.

The lists are the union of those of Mesos 1.11.0 (NvidiaVolume), nvidia-docker 1.0.1 (src/nvidia/volumes.go) and
libnvidia-container (src/nvc_info.c), by the capability groups of the last; docs/volumes-compared.md sets ours beside
theirs. What none of them names is still taken when something that is taken needs it: drivers grow libraries.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.errors import NotFound
from volumes.model import DriverFiles, Elf, Entry, Excluded, File, Group, Link, Plan

PROGRAMS: Final[Mapping[str, Group]] = {
    "nvidia-smi": Group.UTILITY,
    "nvidia-debugdump": Group.UTILITY,
    "nvidia-persistenced": Group.UTILITY,
    "nv-fabricmanager": Group.UTILITY,
    "nvidia-cuda-mps-control": Group.COMPUTE,
    "nvidia-cuda-mps-server": Group.COMPUTE,
}
_LIBRARIES: Final[Mapping[Group, str]] = {
    Group.UTILITY: "libnvidia-ml libnvidia-cfg libnvidia-nscq libnvidia-sandboxutils",
    Group.COMPUTE: "libcuda libcudadebugger libnvidia-opencl libnvidia-gpucomp libnvidia-ptxjitcompiler "
    "libnvidia-fatbinaryloader libnvidia-allocator libnvidia-compiler libnvidia-pkcs11 libnvidia-pkcs11-openssl3 "
    "libnvidia-nvvm libnvidia-nvvm70 libnvidia-tileiras",
    Group.VIDEO: "libvdpau_nvidia libnvidia-encode libnvidia-opticalflow libnvcuvid",
    Group.GRAPHICS: "libnvidia-eglcore libnvidia-glcore libnvidia-tls libnvidia-glsi libnvidia-fbc libnvidia-ifr "
    "libnvidia-rtcore libnvoptix libGLX_nvidia libEGL_nvidia libGLESv2_nvidia libGLESv1_CM_nvidia "
    "libnvidia-glvkspirv libnvidia-cbl libGL libEGL libGLESv1_CM libGLESv2 libGLX libOpenGL libGLdispatch",
    Group.DISPLAY: "libnvidia-egl-wayland libnvidia-egl-gbm libnvidia-egl-xcb libnvidia-egl-xlib",
    Group.NGX: "libnvidia-ngx",
}
LIBRARIES: Final[Mapping[str, Group]] = {
    stem: group for group, stems in _LIBRARIES.items() for stem in stems.split()
}
#: Entry points of OpenGL: of NVIDIA, of another vendor, or neutral (GLVND).
LOADERS: Final = frozenset(
    ("libGL", "libEGL", "libGLESv1_CM", "libGLESv2", "libGLX", "libOpenGL", "libGLdispatch")
)
#: Of NVIDIA, with version numbers of their own: EGL's platform libraries; NVVM before 535 was 4.0.0.
_OWN_VERSION: Final = frozenset((*_LIBRARIES[Group.DISPLAY].split(), "libnvidia-nvvm"))
_NOT_FOR_TASKS: Final[Mapping[str, str]] = {
    "nvidia-modprobe": "it loads kernel modules, which is the host's matter",
    "nvidia-settings": "it sets up the X server",
    "nvidia-xconfig": "it sets up the X server",
    "nvidia-installer": "it installs drivers",
    "nvidia-uninstall": "it removes drivers",
    "nvidia-bug-report.sh": "it reads the host",
    "nvidia-powerd": "it is a service of the host",
    "nvidia-sleep.sh": "it is a service of the host",
    "nvidia-detect": "it tells which driver to install",
    "nvidia-container-cli": "it is of another container runtime, not of the driver",
    "nvidia-container-runtime": "it is of another container runtime, not of the driver",
    "nvidia-container-runtime-hook": "it is of another container runtime, not of the driver",
    "nvidia-container-toolkit": "it is of another container runtime, not of the driver",
    "nvidia-ctk": "it is of another container runtime, not of the driver",
    "nvidia-docker": "it is of another container runtime, not of the driver",
    "libnvidia-container": "it is of another container runtime, not of the driver",
    "libnvidia-container-go": "it is of another container runtime, not of the driver",
    "libnvidia-gtk2": "nvidia-settings uses it",
    "libnvidia-gtk3": "nvidia-settings uses it",
    "libnvidia-wayland-client": "nvidia-settings uses it",
    "libnvidia-wfb": "it is a module of the X server",
    "libglx": "it is a module of the X server",
    "libglxserver_nvidia": "it is a module of the X server",
    "libnvidia-api": "it serves Windows programs under Wine",
    "libnvidia-vulkan-producer": "it serves the host's Wayland compositor",
    "libnvidia-egl-platform": "it serves the host's Wayland compositor",
    "libnvidia-vksc-core": "it is for safety-critical Vulkan, which no image names",
    "libOpenCL": "it is a loader for drivers of all vendors: images bring theirs",
}
ESSENTIAL: Final = ("lib64/libnvidia-ml.so.1", "lib64/libcuda.so.1", "bin/nvidia-smi")
TLS_ABI: Final = (2, 3, 99)  # the threads of today (NPTL); the driver also had a library for those before
_SHARED_OBJECT: Final = re.compile(r"(?P<stem>lib[\w+-]+)\.so(?:\.(?P<version>\S+))?")
_COMPANION: Final = {"x86_64": "i686", "aarch64": "armv7l"}
_DRIVER: Final = re.compile(r"libcuda\.so|libnvidia-ml\.so|libnvidia-glcore\.so|libnvidia-eglcore\.so")


@dataclass(frozen=True, slots=True)
class _Taken:
    file: File
    group: Group
    target: str


def stem_of(name: str) -> str:
    """ "libcuda" of "libcuda.so.535.261.03"; a program's name is its own."""
    match = _SHARED_OBJECT.fullmatch(name)
    return match["stem"] if match else name


def is_driver_name(name: str) -> bool:
    """Whether a library of that name may be of the driver, of whatever version and vendor."""
    stem = stem_of(name)
    if stem == name:
        return False
    return stem in LIBRARIES or stem in _NOT_FOR_TASKS or "nvidia" in stem


def is_driver_program(name: str) -> bool:
    """Whether a program of that name may be of the driver."""
    return name in PROGRAMS or (name.startswith("nvidia-") and not name.endswith(".gz"))


def plan(files: DriverFiles, version: str, machine: str | None = None) -> Plan:
    """The volume of one driver version.

    Args:
        files: What the host has of the driver.
        version: Of the driver, "535.261.03".
        machine: As `Elf.machine`, of 64-bit programs where there are such; None: what the driver's files are for.

    Raises:
        NotFound: No library of that version.
    """
    machine = machine or _machine(files, version)
    if machine is None:
        raise _no_library(files, version)
    excluded: list[Excluded] = list(files.unreadable)
    taken = _without_rivals(_sorted_out(files, version, machine, excluded), excluded)
    taken = _complete_loaders(taken, excluded)
    excluded += _forgotten(files, taken, excluded)
    entries = sorted((Entry(t.target, t.file.path, t.group) for t in taken), key=lambda entry: entry.target)
    return Plan(
        version,
        tuple(entries),
        _links(taken),
        tuple(sorted(set(excluded), key=lambda one: (one.path, one.reason))),
        _missing(taken),
    )


def _machine(files: DriverFiles, version: str) -> str | None:
    """Most of the driver's libraries are for it; 64 bits go before 32."""
    counts = Counter(
        (file.elf.bits, file.elf.machine)
        for file in files.libraries
        if file.elf and _is_of(file.name, version)
    )
    return max(counts, key=lambda key: (key[0], counts[key], key[1]))[1] if counts else None


def _is_of(name: str, version: str) -> bool:
    """The version rule."""
    return name.endswith(f".so.{version}")


def _no_library(files: DriverFiles, version: str) -> NotFound:
    others = versions(files)
    there = f"there are those of {', '.join(others)}" if others else "there are none of any version"
    return NotFound(
        f"no library of driver {version} was found: {there}",
        remedy="install the driver's user-space libraries, or say where they are: --root, MESOS_GPU_DRIVER_ROOT",
    )


def versions(files: DriverFiles) -> tuple[str, ...]:
    """Driver versions by the names of the libraries that every driver has, sorted by number."""
    names = {
        match["version"]
        for file in files.libraries
        if _DRIVER.match(file.name)
        and (match := _SHARED_OBJECT.fullmatch(file.name))
        and re.fullmatch(r"\d{2,4}\.\d+(?:\.\d+)*\S*", match["version"] or "")
    }
    return tuple(sorted(names, key=lambda text: [int(part) for part in re.findall(r"\d+", text)]))


def _sorted_out(files: DriverFiles, version: str, machine: str, excluded: list[Excluded]) -> list[_Taken]:
    """All that the lists and the rules take, and then what those need; rivals for one name still among them."""
    taken: list[_Taken] = []
    left: list[tuple[File, str]] = []
    # A link of one kind's name may lead to a file of the other's: each file is looked at once.
    for file in {file.path: file for file in (*files.libraries, *files.programs)}.values():
        is_program = stem_of(file.name) == file.name
        group = (PROGRAMS if is_program else LIBRARIES).get(stem_of(file.name))
        why = _NOT_FOR_TASKS.get(stem_of(file.name)) or _foreign(file.elf, machine)
        why = why or (None if is_program else _refused(file, version))
        if why is None and group is not None and file.elf is not None:
            taken.append(_Taken(file, group, _target(file, file.elf, is_program)))
        else:
            left.append((file, why or "no list names it, and nothing taken needs it"))
    needed = _needed_too(taken, left, version, machine)
    excluded += [Excluded(file.path, why) for file, why in left if file not in {t.file for t in needed}]
    return taken + needed


def _target(file: File, elf: Elf, is_program: bool) -> str:
    directory = "bin" if is_program else "lib64" if elf.bits == 64 else "lib"
    return f"{directory}/{file.name}"


def _foreign(elf: Elf | None, machine: str) -> str | None:
    if elf is None:
        return "it is no ELF file"
    if elf.machine not in (machine, _COMPANION.get(machine)):
        return f"it is for {elf.machine}, and the driver for {machine}"
    return None


def _refused(file: File, version: str) -> str | None:
    """The rules for libraries: version, vendor of OpenGL, TLS."""
    stem, elf = stem_of(file.name), file.elf
    assert elf is not None
    if stem in LOADERS:
        return _refused_loader(stem, elf, file.name, version)
    if stem == "libnvidia-tls" and elf.abi is not None and elf.abi != TLS_ABI:
        return f"its thread-local storage is for Linux {'.'.join(map(str, elf.abi))}, long past"
    if _is_of(file.name, version):
        return None
    number = file.name.partition(".so")[2].strip(".")
    if stem in _OWN_VERSION and not re.fullmatch(r"\d{3,4}\.\d+(\.\d+)*", number):
        return None
    return f"it is of version {number}, not {version}" if number else "its name has no version"


def _refused_loader(stem: str, elf: Elf, name: str, version: str) -> str | None:
    """NVIDIA's own, or the neutral ones (they need libGLdispatch.so.0), or that itself."""
    ours = any(
        needed.startswith(("libGLdispatch.so", "libnvidia-gl", "libnvidia-egl")) for needed in elf.needed
    )
    if not ours and stem != "libGLdispatch":
        return "it is of another vendor: it needs neither libGLdispatch nor a library of NVIDIA's"
    legacy = re.fullmatch(r"\d{3,4}\.\d+(\.\d+)*", name.partition(".so.")[2])
    if legacy and not _is_of(name, version):
        return f"it is of version {name.partition('.so.')[2]}, not {version}"
    return None


def _needed_too(
    taken: Sequence[_Taken], left: Sequence[tuple[File, str]], version: str, machine: str
) -> list[_Taken]:
    """Libraries that no list names, are of this driver, and are needed by what is taken; and so on."""
    unlisted = {
        (file.elf.bits, name): file
        for file, _ in left
        if file.elf is not None
        and _foreign(file.elf, machine) is None
        and _is_of(file.name, version)
        and stem_of(file.name) not in {*LIBRARIES, *_NOT_FOR_TASKS}
        for name in {file.name, file.elf.soname or file.name}
    }
    needed: list[_Taken] = []
    todo = list(taken)
    while todo:
        one = todo.pop()
        for name in one.file.elf.needed if one.file.elf else ():
            file = unlisted.get((one.file.elf.bits if one.file.elf else 0, name))
            if file is not None and file.elf is not None and file not in {t.file for t in needed}:
                needed.append(_Taken(file, one.group, _target(file, file.elf, is_program=False)))
                todo.append(needed[-1])
    return needed


def _without_rivals(taken: Iterable[_Taken], excluded: list[Excluded]) -> list[_Taken]:
    """Keep a file for each name: not for special processors, of the newest version of its own, the first found."""
    best: dict[tuple[str, str], _Taken] = {}
    order = sorted(taken, key=_preference)
    for one in order:  # sorted is stable: the order of discovery decides last
        directory, _, name = one.target.partition("/")
        key = (directory, stem_of(name))
        if key in best:
            why = f"{best[key].file.path} is taken for it"
            excluded.append(
                Excluded(one.file.path, f"{why}, which runs on every processor" if one.file.hwcap else why)
            )
        else:
            best[key] = one
    return list(best.values())


def _preference(one: _Taken) -> tuple[bool, int, list[int]]:
    bits = one.file.elf.bits if one.file.elf else 0
    return bool(one.file.hwcap), -bits, [-number for number in _numbers(one.file.name)]


def _numbers(name: str) -> list[int]:
    return [int(text) for text in re.findall(r"\d+", name.partition(".so")[2])]


def _complete_loaders(taken: list[_Taken], excluded: list[Excluded]) -> list[_Taken]:
    """OpenGL's entry points only where they will load: with the others that they need, and in older images.

    The neutral ones may be the distribution's, built for its own glibc; in front of an older image's own they
    would break it. The driver's files run on very old ones, and say the limit.
    """
    limit = max((_glibc(t) for t in taken if stem_of(t.file.name) not in LOADERS), default=())
    while True:
        there = {(t.target.partition("/")[0], t.file.elf.soname or t.file.name) for t in taken if t.file.elf}
        bad = {t.target: why for t in taken if (why := _unloadable(t, there, limit))}
        if not bad:
            return taken
        excluded += [Excluded(t.file.path, bad[t.target]) for t in taken if t.target in bad]
        taken = [t for t in taken if t.target not in bad]


def _glibc(taken: _Taken) -> tuple[int, ...]:
    return taken.file.elf.glibc if taken.file.elf else ()


def _unloadable(one: _Taken, there: set[tuple[str, str]], limit: tuple[int, ...]) -> str | None:
    elf = one.file.elf
    if elf is None or stem_of(one.file.name) not in LOADERS:
        return None
    if elf.glibc > limit:
        text = ".".join(map(str, elf.glibc))
        return f"it needs glibc {text}, the driver's own files less: older images, which have theirs, would break"
    for name in elf.needed:
        if stem_of(name) in LOADERS and (one.target.partition("/")[0], name) not in there:
            return f"it needs {name}, which is not taken"
    return None


def _forgotten(
    files: DriverFiles, taken: Iterable[_Taken], excluded: Iterable[Excluded]
) -> Iterator[Excluded]:
    """Every file that was found is in the plan, or has a reason: so that the sum can be checked."""
    known = {one.file.path for one in taken} | {one.path for one in excluded}
    for file in (*files.libraries, *files.programs):
        if file.path not in known:
            yield Excluded(file.path, "the same file is taken under another path")


def _links(taken: Sequence[_Taken]) -> tuple[Link, ...]:
    """Links by SONAME, by every name of the loader's cache, and two that programs are known to want."""
    files = {one.target for one in taken}
    links: dict[str, str] = {}
    wishes = [(one, name) for one in taken for name in _sonames(one)]
    wishes += [(one, name) for one in taken for name in _other_names(one)]
    for one, name in wishes:  # a SONAME goes before any other name
        directory, _, own = one.target.partition("/")
        target = f"{directory}/{name}"
        if target not in files:
            links.setdefault(target, own)
    return tuple(Link(target, to) for target, to in sorted(links.items()))


def _sonames(one: _Taken) -> Iterator[str]:
    soname = one.file.elf.soname if one.file.elf else None
    if soname and "/" not in soname and soname not in (".", ".."):
        yield soname
        if stem_of(soname) == "libGLX_nvidia":  # GLVND asks for it where it draws on another machine's screen
            yield soname.replace("GLX_nvidia", "GLX_indirect", 1)


def _other_names(one: _Taken) -> Iterator[str]:
    stem = stem_of(one.file.name)
    yield from (name for name in one.file.names if stem_of(name) == stem)
    if stem == "libcuda":  # many programs open it without a version
        yield "libcuda.so"


def _missing(taken: Sequence[_Taken]) -> tuple[str, ...]:
    """What a CUDA program will miss, in words."""
    targets = {one.target for one in taken} | {link.target for link in _links(taken)}
    there = {target.partition("/")[0]: set[str]() for target in targets}
    for target in targets:
        there[target.partition("/")[0]].add(target.partition("/")[2])
    lacking = [f"{name} is not there" for name in ESSENTIAL if name not in targets]
    for one in taken:
        directory = one.target.partition("/")[0]
        for name in one.file.elf.needed if one.file.elf else ():
            if "nvidia" in name and name not in there.get("lib64" if directory == "bin" else directory, ()):
                lacking.append(f"{name} is not there, which {one.target} needs")
    return tuple(sorted(set(lacking)))
