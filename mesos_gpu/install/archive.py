"""Build `mesos-gpu-executor.pyz`: all that a GPU host runs, in one file that needs a Python and nothing else."""

import ast
import functools
import io
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import isolator
from mesos_gpu.errors import Unavailable
from mesos_gpu.install.unpack import PREFIX
from mesos_gpu.wire.digest import blake2b

NAME: Final = "mesos-gpu-executor.pyz"
OWN: Final = ("isolator", "mesos_gpu", "volumes")
#: Pure Python packages that programs of hosts import, by their distribution.
OTHERS: Final = {"nvidia-ml-py": "pynvml", "platformdirs": "platformdirs", "pyelftools": "elftools"}
#: Packages compiled for one Python and machine: only the scheduler's host, which encrypts secrets, needs them.
LEFT_OUT: Final = frozenset({"cryptography"})
_WHEN: Final = (1980, 1, 1, 0, 0, 0)  # fixed, so that equal sources give equal archives
_LINE: Final = 'DIGEST = ""'


def build(into: Path) -> Path:
    """Write the archive, and return its path.

    Args:
        into: Target file, or a directory in which the file is called `NAME`.

    Raises:
        Unavailable: A package that it must contain is not installed.
        OSError: The file cannot be written.
    """
    target = into / NAME if into.is_dir() else into
    data = packed(contents())
    part = target.with_name(target.name + ".part")
    part.write_bytes(data)
    part.chmod(0o755)
    part.replace(target)
    return target


def contents() -> dict[str, bytes]:
    """Return all files that a host runs from, by their path in the unpacked directory."""
    files = {
        str(path.relative_to(_root())): path.read_bytes() for path in (*_sources().values(), *_libraries())
    }
    for distribution, package in OTHERS.items():
        files |= _dependency_files(distribution, package)
    return files


def digest(files: Mapping[str, bytes]) -> str:
    """Return a digest of file names and contents, 32 hexadecimal digits."""
    hasher = blake2b(digest_size=16)
    for name in sorted(files):
        hasher.update(f"{len(files[name])} {name}\n".encode() + files[name])
    return hasher.hexdigest()


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return the content of the archive."""
    here = Path(__file__).parent
    begin = here.joinpath("start.py").read_text()
    assert begin.count(_LINE) == 1, "where the digest goes"
    unpacking = here.joinpath("unpack.py").read_bytes()
    whole = {"start": begin.encode(), "unpack": unpacking, **files}
    members = {
        "__main__.py": begin.replace(_LINE, f'DIGEST = "{digest(whole)}"').encode(),
        "mesos_gpu_unpack.py": unpacking,
        **{PREFIX + name: data for name, data in sorted(files.items())},
    }
    buffer = io.BytesIO(b"#!/usr/bin/env -S python3 -IS\n")
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _WHEN)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def _root() -> Path:
    return Path(isolator.__file__).parent.parent


def _sources() -> dict[str, Path]:
    """Return all modules of `isolator`, and the modules of `OWN` that they import, also within functions."""
    ours = {_name(path): path for top in OWN for path in (_root() / top).rglob("*.py")}
    pending = [name for name in ours if name.partition(".")[0] == "isolator"]
    pending += ["mesos_gpu.install.flat", "mesos_gpu.install.flat_loader", "mesos_gpu.written"]
    modules: dict[str, Path] = {}
    while pending:
        name = pending.pop()
        if name in modules:
            continue
        modules[name] = ours[name]
        parts = name.split(".")
        pending += [".".join(parts[:count]) for count in range(1, len(parts))]
        pending += [module for module in imports(ours[name].read_text()) if module in ours]
    return modules


@functools.cache
def imports(source: str) -> tuple[str, ...]:
    """Return the modules that a source may import: of `from a import b`, both `a` and `a.b`."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return tuple(modules)


def _name(path: Path) -> str:
    return ".".join(path.relative_to(_root()).with_suffix("").parts).removesuffix(".__init__")


def _libraries() -> Iterator[Path]:
    """Yield the sources of the CUDA libraries for shares, and the libraries that the release has built already."""
    for suffix in ("*.c", "*.h", "built/*/*"):
        yield from (path for path in (_root() / "isolator/shares/shim").glob(suffix) if path.is_file())


def _dependency_files(distribution: str, package: str) -> dict[str, bytes]:
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        files = []
    modules = [file for file in files if file.parts[0] in (package, f"{package}.py") and file.suffix == ".py"]
    if not modules:
        raise Unavailable(
            f"{distribution} is not installed here by pip, but the archive must contain it",
            remedy="pip install 'mesos_gpu[agent]'",
        )
    packed_files = [*modules, *filter(_is_licence, files)]
    return {str(file): Path(str(file.locate())).read_bytes() for file in packed_files}


def _is_licence(path: metadata.PackagePath) -> bool:
    return path.parts[0].endswith(".dist-info") and (
        path.name == "METADATA" or path.stem.upper().startswith(("LICENSE", "LICENCE", "COPYING"))
    )


def unmet() -> dict[str, list[str]]:
    """Return modules that the archive lacks, with the modules that import them.

    Python's own modules and those left out on purpose do not count.
    """
    inside = {*OWN, *OTHERS.values(), *LEFT_OUT}
    missing: dict[str, list[str]] = {}
    for name, path in _sources().items():
        for module in imports(path.read_text()):
            top = module.partition(".")[0]
            if top not in inside and top not in sys.stdlib_module_names:
                missing.setdefault(top, []).append(name)
    return missing
