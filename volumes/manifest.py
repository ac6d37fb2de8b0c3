"""Choice of the host's files for a driver volume, with names, and reasons for excluded files. Without side
effects.

The lists are the union of those of Mesos 1.11.0 (NvidiaVolume), nvidia-docker 1.0.1 (src/nvidia/volumes.go)
and libnvidia-container (src/nvc_info.c), in the capability groups of the last; docs/volumes-compared.md
compares them with those of this module. As new drivers bring new libraries, a library on no list is taken by
evidence: its name or SONAME ends in the driver's version; or it is NVIDIA's, lies beside libraries of that
version, and has a version of its own that its SONAME confirms.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.errors import NotFound
from volumes import graphics
from volumes.model import DriverFiles, Elf, Entry, Excluded, File, Group, Link, Plan
from volumes.places import around

PROGRAMS: Final[Mapping[str, Group]] = {
    "nvidia-smi": Group.UTILITY,
    "nvidia-debugdump": Group.UTILITY,
    "nvidia-persistenced": Group.UTILITY,
    "nv-fabricmanager": Group.UTILITY,
    "nvidia-cuda-mps-control": Group.COMPUTE,
    "nvidia-cuda-mps-server": Group.COMPUTE,
}
_LIBRARIES: Final[Mapping[Group, str]] = {
    Group.UTILITY: "libnvidia-ml libnvidia-cfg libnvidia-nscq libnvsdm libnvidia-sandboxutils",
    Group.COMPUTE: "libcuda libcudadebugger libnvidia-opencl libnvidia-gpucomp libnvidia-ptxjitcompiler "
    "libnvidia-fatbinaryloader libnvidia-allocator libnvidia-compiler libnvidia-pkcs11 libnvidia-pkcs11-openssl3 "
    "libnvidia-nvvm libnvidia-nvvm70 libnvidia-tileiras",
    Group.VIDEO: "libvdpau_nvidia libnvidia-encode libnvidia-opticalflow libnvcuvid libnvcuextend",
    Group.GRAPHICS: "libnvidia-eglcore libnvidia-glcore libnvidia-tls libnvidia-glsi libnvidia-fbc libnvidia-ifr "
    "libnvidia-rtcore libnvoptix libGLX_nvidia libEGL_nvidia libGLESv2_nvidia libGLESv1_CM_nvidia "
    "libnvidia-glvkspirv libnvidia-cbl libnvidia-present libnvidia-vulkan-producer libGL libEGL libGLESv1_CM "
    "libGLESv2 libGLX libOpenGL libGLdispatch",
    Group.DISPLAY: "libnvidia-egl-wayland libnvidia-egl-wayland2 libnvidia-egl-gbm libnvidia-egl-xcb "
    "libnvidia-egl-xlib",
    Group.NGX: "libnvidia-ngx",
}
LIBRARIES: Final[Mapping[str, Group]] = {
    stem: group for group, stems in _LIBRARIES.items() for stem in stems.split()
}
#: Entry points of OpenGL, which may be NVIDIA's, another vendor's, or neutral (GLVND).
LOADERS: Final = frozenset(
    ("libGL", "libEGL", "libGLESv1_CM", "libGLESv2", "libGLX", "libOpenGL", "libGLdispatch")
)
#: NVIDIA's libraries with version numbers of their own: EGL's platforms; NVVM, before 535 as 4.0.0, with a
#: second one since 575. They may come in packages, and so in directories, of their own.
_OWN_VERSION: Final = frozenset((*_LIBRARIES[Group.DISPLAY].split(), "libnvidia-nvvm", "libnvidia-nvvm70"))
_NOT_FOR_TASKS: Final[Mapping[str, str]] = {
    "nvidia-modprobe": "it loads kernel modules, which is the host's matter",
    "nvidia-settings": "it sets up the X server",
    "nvidia-xconfig": "it sets up the X server",
    "nvidia-installer": "it installs drivers",
    "nvidia-uninstall": "it removes drivers",
    "nvidia-bug-report.sh": "it reads the host",
    "nvidia-powerd": "it is a service of the host",
    "nvidia-sleep.sh": "it is a service of the host",
    "nvidia-detect": "it proposes a driver to install",
    "nvidia-detector": "it proposes a driver to install",
    "nvidia-ngx-updater": "it replaces libraries of the host",
    "nvidia-pcc": "it is for safety-critical Vulkan, which no image names",
    "nvidia-imex": "it is a service of the host",
    "nvidia-imex-ctl": "it is a service of the host",
    "nvidia-fs": "it is a service of the host",
    "nvidia-container-cli": "it is of another container runtime, not of the driver",
    "nvidia-container-runtime": "it is of another container runtime, not of the driver",
    "nvidia-container-runtime-hook": "it is of another container runtime, not of the driver",
    "nvidia-container-toolkit": "it is of another container runtime, not of the driver",
    "nvidia-cdi-hook": "it is of another container runtime, not of the driver",
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
    "libnvidia-egl-platform": "it serves the host's Wayland compositor",
    "libnvidia-vksc-core": "it is for safety-critical Vulkan, which no image names",
    "libOpenCL": "it is a loader for drivers of all vendors: images bring theirs",
}
GBM: Final = "gbm/nvidia-drm_gbm.so"  # below a directory of libraries
ESSENTIAL: Final = ("lib64/libnvidia-ml.so.1", "lib64/libcuda.so.1", "bin/nvidia-smi")
TLS_ABI: Final = (2, 3, 99)  # today's threads (NPTL); the driver also had a library for the older ones
_FAR: Final = 100
_PROGRAM: Final = re.compile(r"nvidia-[\w-]+(?:\.sh)?")
_OF_HOST: Final = re.compile(
    r".*\.(?:dll|conf|service|rules)|nvidia_drv\.so|nvidia-application-profiles-.*|nvidia_icd_vksc.*\.json|gsp_.*\.bin"
)
_LOADER: Final = re.compile(r"/lib(?:32|64)?/ld[\w-]*\.so\.\d")  # of the ABIs of all machines with a driver
_SHARED_OBJECT: Final = re.compile(r"(?P<stem>lib[\w+-]+)\.so(?:\.(?P<version>\S+))?")
_COMPANION: Final = {"x86_64": "i686", "aarch64": "armv7l"}
_CORE: Final = re.compile(r"(?:libcuda|libnvidia-ml|libnvidia-glcore|libnvidia-eglcore)\.so\b")
#: The end of a library's name that has the version of a driver, "535.261.03", and no version of its own.
DRIVER_VERSION: Final = re.compile(r"\.so\.(\d{3,4}\.\d+(?:\.\d+)*)$")


@dataclass(frozen=True, slots=True)
class _Taken:
    file: File
    group: Group
    target: str


def stem_of(name: str) -> str:
    """Return the stem of a library's name, "libcuda" of "libcuda.so.535.261.03"; a program's name is its own
    stem.
    """
    match = _SHARED_OBJECT.fullmatch(name)
    return match["stem"] if match else name


def is_driver_name(name: str) -> bool:
    """Return whether a library of that name may be of the driver, of whatever version and vendor."""
    stem = stem_of(name)
    if stem == name:
        return False
    listed = stem in LIBRARIES or stem in _NOT_FOR_TASKS or "nvidia" in stem
    return listed or DRIVER_VERSION.search(name) is not None


def is_left_to_host(name: str) -> bool:
    """Return whether a file of that name is known to serve only the host."""
    return stem_of(name) in _NOT_FOR_TASKS or _OF_HOST.fullmatch(name) is not None


def is_core_library(name: str) -> bool:
    """Return whether every driver has a library of that name, so that its directory is one of the driver's."""
    return _CORE.match(name) is not None


def is_driver_program(name: str) -> bool:
    """Return whether a program of that name may be of the driver."""
    return name in PROGRAMS or _PROGRAM.fullmatch(name) is not None


def plan(files: DriverFiles, version: str, machine: str | None = None) -> Plan:
    """Plan the volume of one driver version.

    Args:
        files: Driver files of the host.
        version: Version of the driver, "535.261.03".
        machine: Machine in the words of `Elf.machine`, with its 64-bit programs if it has such; None for the
            machine of the driver's files.

    Raises:
        NotFound: The host has no library of that version.
    """
    machine = machine or _machine(files, version)
    if machine is None:
        raise _no_library(files, version)
    homes = _Homes.of(files, version)
    excluded: list[Excluded] = []
    taken = _without_rivals(_sorted_out(files, homes, machine, excluded), homes, excluded)
    taken = _complete_loaders(taken, excluded)
    excluded += (replace(each, warned=each.warned or homes.miss(each.path)) for each in files.unreadable)
    excluded += _forgotten(files, taken, excluded)
    links = _links(taken)
    names = {
        target.rpartition("/")[2] for target in (*(t.target for t in taken), *(link.target for link in links))
    }
    entries = [Entry(t.target, t.file.path, t.group) for t in taken]
    data = sorted(files.data, key=lambda file: homes.distance(file.path))
    entries += graphics.planned(data, names, excluded)
    links = tuple(sorted((*links, *graphics.links(entries)), key=lambda link: link.target))
    # A link of one name may lead to a file that is taken under another.
    sources = {entry.source for entry in entries}
    stems = {stem_of(one.file.name) for one in taken}  # a file that is taken under another name is no loss
    excluded = [
        replace(each, warned=each.warned and stem_of(each.path.rpartition("/")[2]) not in stems)
        for each in excluded
        if each.path not in sources
    ]
    return Plan(
        version,
        tuple(sorted(entries, key=lambda entry: entry.target)),
        links,
        tuple(sorted(set(excluded), key=lambda one: (one.path, one.reason))),
        _missing(taken),
    )


@dataclass(frozen=True, slots=True)
class _Homes:
    """Directories of the driver's libraries.

    Attributes:
        version: Version of the driver.
        own: Directories that have libraries of that version.
        others: Directories that have libraries of other versions only.
    """

    version: str
    own: frozenset[str]
    others: frozenset[str]

    @classmethod
    def of(cls, files: DriverFiles, version: str) -> "_Homes":
        own = {file.directory for file in files.libraries if _is_of(file, version)}
        every = {file.directory for file in files.libraries if DRIVER_VERSION.search(file.name)}
        return cls(version, frozenset(own), frozenset(every - own))

    def distance(self, path: str) -> int:
        """Return the number of levels from a library of this driver up to a directory that also has the file;
        many if none has.
        """
        steps = (
            step
            for home in self.own
            for step, above in enumerate(around(home))
            if path.startswith(f"{above.rstrip('/')}/")
        )
        return min(steps, default=_FAR)

    def miss(self, path: str) -> bool:
        """Return whether a task may miss an excluded file, as its name and place make it this driver's."""
        directory, _, name = path.rpartition("/")
        stem = stem_of(name)
        if directory not in self.own or stem in _NOT_FOR_TASKS or stem in LOADERS or stem == name:
            return False
        version = DRIVER_VERSION.search(name)
        return version[1] == self.version if version else "nvidia" in stem or is_core_library(name)


def _machine(files: DriverFiles, version: str) -> str | None:
    """Return the machine of most of the driver's libraries, 64 bits before 32; None without such libraries."""
    counts = Counter(
        (file.elf.bits, file.elf.machine) for file in files.libraries if file.elf and _is_of(file, version)
    )
    return max(counts, key=lambda key: (key[0], counts[key], key[1]))[1] if counts else None


def _is_of(file: File, version: str) -> bool:
    """Return whether a library is of that driver, by its name, its SONAME, or else the version in its
    content.
    """
    soname = (file.elf.soname if file.elf else None) or ""
    return (
        file.name.endswith(f".so.{version}")
        or soname.endswith(f".so.{version}")
        or file.mentions == (version,)
    )


def _no_library(files: DriverFiles, version: str) -> NotFound:
    others = versions(files)
    there = f"there are those of {', '.join(others)}" if others else "there are none of any version"
    return NotFound(
        f"no library of driver {version} was found: {there}",
        remedy="install the libraries of that driver, or name their directory: --driver-library-path, "
        "MESOS_GPU_DRIVER_LIBRARY_PATH",
    )


def versions(files: DriverFiles) -> tuple[str, ...]:
    """Return driver versions by the names of the libraries that every driver has, sorted by number."""
    names = {
        match["version"]
        for file in files.libraries
        if is_core_library(file.name)
        and (match := _SHARED_OBJECT.fullmatch(file.name))
        and re.fullmatch(r"\d{2,4}\.\d+(?:\.\d+)*\S*", match["version"] or "")
    }
    names |= {file.mentions[0] for file in files.libraries if len(file.mentions) == 1}
    return tuple(sorted(names, key=lambda text: [int(part) for part in re.findall(r"\d+", text)]))


def _sorted_out(files: DriverFiles, homes: _Homes, machine: str, excluded: list[Excluded]) -> list[_Taken]:
    """Return all files that the lists and the rules take, including rivals for one name."""
    taken: list[_Taken] = []
    # A link with a program's name may lead to a library, and vice versa: each file is examined once.
    for file in {file.path: file for file in (*files.libraries, *files.programs)}.values():
        stem = stem_of(file.name)
        is_program = stem == file.name
        why = _NOT_FOR_TASKS.get(stem) or _foreign(file.elf, machine)
        why = why or (_refused_program if is_program else _refused)(file, homes)
        if why is None and file.elf is not None:
            group = (PROGRAMS if is_program else LIBRARIES).get(stem, Group.COMPUTE)
            taken.append(_Taken(file, group, _target(file, file.elf, is_program)))
        else:
            warned = homes.miss(file.path) or (is_program and homes.version in file.mentions)
            warned = warned and stem not in _NOT_FOR_TASKS
            excluded.append(Excluded(file.path, why or "", warned))
    return taken


def _refused_program(file: File, homes: _Homes) -> str | None:
    if file.name not in PROGRAMS:
        return "it is no program of the driver that tasks use"
    if len(file.mentions) == 1 and file.mentions[0] != homes.version:
        return f"it is of driver {file.mentions[0]}, not {homes.version}"
    return None


def _target(file: File, elf: Elf, is_program: bool) -> str:
    directory = "bin" if is_program else "lib64" if elf.bits == 64 else "lib"
    return f"{directory}/{file.name}"


def _foreign(elf: Elf | None, machine: str) -> str | None:
    if elf is None:
        return "it is no ELF file"
    if elf.machine not in (machine, _COMPANION.get(machine)):
        return f"it is for {elf.machine}, and the driver for {machine}"
    return None


def _refused(file: File, homes: _Homes) -> str | None:
    """Apply the rules for libraries: version, vendor of OpenGL, TLS. Return the reason for a refusal, else
    None.
    """
    stem, elf, version = stem_of(file.name), file.elf, homes.version
    assert elf is not None
    if stem in LOADERS:
        return _refused_loader(file, version)
    if stem == "libnvidia-tls" and elf.abi is not None and elf.abi != TLS_ABI:
        return f"its thread-local storage is for Linux {'.'.join(map(str, elf.abi))}, which is obsolete"
    if _is_of(file, version):
        return None
    number = file.name.partition(".so")[2].strip(".")
    if DRIVER_VERSION.search(file.name) or (stem in LIBRARIES and stem not in _OWN_VERSION):
        return f"it is of version {number}, not {version}" if number else "its name has no version"
    return _refused_own_version(file, stem, homes)


def _refused_own_version(file: File, stem: str, homes: _Homes) -> str | None:
    """Apply the rule for libraries with a version of their own: known, or beside the driver's with a SONAME
    that agrees.
    """
    if file.directory in homes.own:
        soname = (file.elf.soname if file.elf else None) or ""
        if stem in _OWN_VERSION or (stem_of(soname) == stem and f"{file.name}.".startswith(f"{soname}.")):
            return None
        return f"its SONAME {soname or 'is missing and'} does not confirm its name"
    if stem in _OWN_VERSION and file.directory not in homes.others:
        return None
    return "it has a version of its own, and lies apart from the libraries of this driver"


def _refused_loader(file: File, version: str) -> str | None:
    """Apply the rule for OpenGL's entry points.

    NVIDIA's own are taken, and the neutral ones: those that need libGLdispatch.so.0, and libGLdispatch
    itself.
    """
    needed = file.elf.needed if file.elf else ()
    ours = any(name.startswith(("libGLdispatch.so", "libnvidia-gl", "libnvidia-egl")) for name in needed)
    if not ours and stem_of(file.name) != "libGLdispatch":
        return "it is of another vendor: it needs neither libGLdispatch nor a library of NVIDIA's"
    legacy = DRIVER_VERSION.search(file.name)
    if legacy and not _is_of(file, version):
        return f"it is of version {legacy[1]}, not {version}"
    return None


def _without_rivals(taken: Iterable[_Taken], homes: _Homes, excluded: list[Excluded]) -> list[_Taken]:
    """Keep one file for each name: not for special processors, near the driver's libraries, of the newest
    version.

    If these do not decide, the first file in the order of discovery is kept.
    """
    best: dict[tuple[str, str], _Taken] = {}
    order = sorted(taken, key=lambda one: _preference(one, homes))
    for one in order:  # sorted is stable, so the order of discovery decides last
        directory, _, name = one.target.partition("/")
        key = (directory, stem_of(name))
        if key in best:
            why = f"{best[key].file.path} is taken instead"
            excluded.append(
                Excluded(one.file.path, f"{why}, which runs on every processor" if one.file.hwcap else why)
            )
        else:
            best[key] = one
    return list(best.values())


def _preference(one: _Taken, homes: _Homes) -> tuple[bool, int, int, list[int]]:
    bits = one.file.elf.bits if one.file.elf else 0
    apart = homes.distance(one.file.path)
    return bool(one.file.hwcap), -bits, apart, [-number for number in _numbers(one.file.name)]


def _numbers(name: str) -> list[int]:
    return [int(text) for text in re.findall(r"\d+", name.partition(".so")[2])]


def _complete_loaders(taken: list[_Taken], excluded: list[Excluded]) -> list[_Taken]:
    """Keep OpenGL's entry points only if they will load: with the others that they need, and in older images.

    The neutral ones may be the distribution's, built for its own glibc; in front of an older image's own they
    would break it. The driver's files run on very old ones, and show the limit.
    """
    limit = max((_glibc(t) for t in taken if DRIVER_VERSION.search(t.file.name)), default=())
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
        return f"it needs glibc {text}, the driver's own files need less: older images have their own, and would break"
    for name in elf.needed:
        if stem_of(name) in LOADERS and (one.target.partition("/")[0], name) not in there:
            return f"it needs {name}, which is not taken"
    return None


def _forgotten(
    files: DriverFiles, taken: Iterable[_Taken], excluded: Iterable[Excluded]
) -> Iterator[Excluded]:
    """Yield each file that is in neither list, with a reason, so that every file is in the plan or excluded."""
    known = {one.file.path for one in taken} | {one.path for one in excluded}
    for file in (*files.libraries, *files.programs):
        if file.path not in known:
            yield Excluded(file.path, "the same file is taken under another path")


def _links(taken: Sequence[_Taken]) -> tuple[Link, ...]:
    """Return links by SONAME, by every name in the loader's cache, and three names that programs are known to
    use.
    """
    files = {one.target for one in taken}
    links: dict[str, str] = {}
    candidates = [(one, name) for one in taken for name in _sonames(one)]
    candidates += [(one, name) for one in taken for name in _other_names(one)]
    for one, name in candidates:  # a SONAME has priority over any other name
        directory, _, own = one.target.partition("/")
        target = f"{directory}/{name}"
        if target not in files:
            links.setdefault(target, own)
        if (
            stem_of(own) == "libnvidia-allocator"
        ):  # libgbm searches for its back-ends in a directory of their own
            links[f"{directory}/{GBM}"] = f"../{own}"
    return tuple(Link(target, to) for target, to in sorted(links.items()))


def _sonames(one: _Taken) -> Iterator[str]:
    soname = one.file.elf.soname if one.file.elf else None
    if soname is None or "/" in soname:
        return
    stem = stem_of(soname)
    # A library may not take the name of another that is not a driver's, such as libstdc++.so.6.
    if stem == stem_of(one.file.name) or stem in LIBRARIES:
        yield soname
        if stem == "libGLX_nvidia":  # GLVND needs it to draw on another machine's screen
            yield soname.replace("GLX_nvidia", "GLX_indirect", 1)


def _other_names(one: _Taken) -> Iterator[str]:
    stem = stem_of(one.file.name)
    yield from (name for name in one.file.names if stem_of(name) == stem)
    if stem == "libcuda":  # many programs open it without a version
        yield "libcuda.so"


def _missing(taken: Sequence[_Taken]) -> tuple[str, ...]:
    """Describe the files that a CUDA program will miss."""
    # As "lib64/libcuda.so.1".
    targets = {one.target for one in taken} | {link.target for link in _links(taken)}
    there = {target.partition("/")[0]: set[str]() for target in targets}
    for target in targets:
        there[target.partition("/")[0]].add(target.partition("/")[2])
    problems = [f"{name} is not there" for name in ESSENTIAL if name not in targets]
    for one in taken:
        directory = one.target.partition("/")[0]
        for name in one.file.elf.needed if one.file.elf else ():
            if "nvidia" in name and name not in there.get("lib64" if directory == "bin" else directory, ()):
                problems.append(f"{name} is not there, which {one.target} needs")
        loader = one.file.elf.interpreter if one.file.elf else None
        if loader is not None and not _LOADER.fullmatch(loader):
            problems.append(f"{loader} is not in images, which {one.target} needs to start")
    return tuple(sorted(set(problems)))
