"""Packing of all modules that a program imports at its start into one compiled file, read at once without searches.

`begin` returns the statement by which an interpreter takes modules from the file. Modules that are not in it, or were
compiled by another version of Python, are imported from the directory as usual. Modules of the standard library are in
it too, because finding and reading them took a tenth of an executor's start; only the exact build of Python that they
come from uses them.
"""

import ast
import contextlib
import errno
import importlib.util
import marshal
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

from mesos_gpu.install import library
from mesos_gpu.install.lean import lean, without_columns
from mesos_gpu.install.library import above, imports
from mesos_gpu.wire.digest import blake2b

#: Modules that executors import: at their start, for the task's user, to start the task, after its end, and for a
#: task that was killed or failed.
EXECUTOR: Final = (
    "isolator.__main__",
    "isolator.executor.main",
    "mesos_gpu.adapters.accounts",
    "isolator.confinement.inner",
    "isolator.host.unsealed",
    "isolator.runs.memory",
)
NAME: Final = "programs.flat"
KEPT_S: Final = 86400.0  # age of files that are removed from the cache, which several installations may share
_LOADER: Final = Path(__file__).with_name("flat_loader.py")
#: The file is read unbuffered, so that it is in memory once: a second copy would cost each start 350 page faults.
_BEGIN: Final = """\
import marshal, sys, _frozen_importlib_external
sys.path.append({root!r})
try:
    with open({flat!r}, "rb", 0) as file:
        packed = file.readall()
except OSError:
    packed = b""
if packed[:4] == _frozen_importlib_external.MAGIC_NUMBER:
    loader, index = marshal.loads(memoryview(packed)[4:])
    exec(loader, {{"INDEX": index, "DATA": packed, "ROOT": {root!r}}})
"""


class Module(NamedTuple):
    """A parsed module below a directory of packages. `file`: its path below that directory."""

    name: str
    file: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether the module is a package."""
        return self.file.endswith("/__init__.py")


def begin(flat: str, root: str) -> str:
    """Return source code that makes an interpreter import from a file of `packed`, or else from directory `root`."""
    return _BEGIN.format(flat=flat, root=root)


def packed(root: Path, first: Iterable[str], seen: str = "") -> bytes:
    """Return the content of a flat file.

    Args:
        root: Directory of packages.
        first: Modules to pack, together with what they import at module level.
        seen: Path of the directory at run time, for tracebacks; "" for `root`.

    Raises:
        ModuleNotFoundError: A module of `first` does not exist.
        OSError: A source cannot be read.
    """
    loader = compile(lean(_LOADER.read_text()), str(_LOADER), "exec", dont_inherit=True)
    ours = list(reached(root, first))
    names = [name for module in ours for name in imports(module.tree.body)]
    modules = {
        module.name: (module.is_package, module.file, marshal.dumps(_compiled(seen or str(root), module)))
        for module in ours
    }
    standard = library.packed(names)
    codes = bytearray()
    index = _appended(codes, modules), _appended(codes, standard), sys.version, len(codes)
    return importlib.util.MAGIC_NUMBER + marshal.dumps((loader, index)) + codes


def _appended(
    codes: bytearray, modules: Mapping[str, library.Packed]
) -> dict[str, tuple[bool, str, int, int]]:
    """Append codes to `codes`. Return by module name: whether it is a package, its file, start and size of its code."""
    index = {}
    for name, (package, file, code) in modules.items():
        index[name] = package, file, len(codes), len(code)
        codes += code
    return index


def kept(root: Path, first: Iterable[str], cache: Path) -> bytes:
    """Return a flat file from the user's cache, which is valid until a source changes.

    It is packed if it is not in the cache, or if others could have written it there.

    Raises:
        As `packed`.
    """
    path = cache / f"{_state(root, first)}.flat"
    with contextlib.suppress(OSError):
        return _read(path)
    data = packed(root, first)
    with contextlib.suppress(OSError):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in cache.glob("*.flat"):
            if time.time() - old.stat().st_mtime > KEPT_S:
                old.unlink()
        with tempfile.NamedTemporaryFile(dir=cache, prefix=".new-", delete=False) as file:
            file.write(data)
        os.rename(file.name, path)
    return data


def _read(path: Path) -> bytes:
    """Return the content of a cached file.

    Raises:
        OSError: The file does not exist, or others could have written it.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        for status in (os.fstat(handle), os.stat(path.parent)):
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise PermissionError(errno.EPERM, f"others could have written {path}")
        return file.read()


def _state(root: Path, first: Iterable[str]) -> str:
    """Return a digest of the state of the sources and the version of Python."""
    hasher = blake2b(digest_size=16)
    hasher.update(repr((sys.version, str(root), *first)).encode())
    for top in ("isolator", "mesos_gpu", "volumes"):
        for path in sorted((root / top).rglob("*.py")):
            status = path.stat()
            hasher.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return hasher.hexdigest()


def _compiled(seen: str, module: Module) -> CodeType:
    return compile(without_columns(module.tree), f"{seen}/{module.file}", "exec", dont_inherit=True)


def reached(root: Path, first: Iterable[str]) -> Iterator[Module]:
    """Yield the modules that an import of `first` loads, stripped by `lean`; each once.

    Raises:
        As `packed`.
    """
    ours = {path.name for path in root.iterdir() if (path / "__init__.py").is_file()}
    pending, seen = list(first), set[str]()
    for name in pending:
        if _file(root, name) is None:
            raise ModuleNotFoundError(f"no module {name} below {root}", name=name)
    while pending:
        name = pending.pop()
        if name in seen or name.partition(".")[0] not in ours or (path := _file(root, name)) is None:
            continue
        seen.add(name)
        module = Module(name, str(path.relative_to(root)), lean(path.read_text(), str(path)))
        yield module
        pending += above(name)
        pending += [
            module_name
            for imported in imports(module.tree.body)
            for module_name in (imported, *above(imported))
        ]


def _file(root: Path, name: str) -> Path | None:
    """Return the file of a module; None if there is no such module, as in `from module import function`."""
    path = root.joinpath(*name.split("."))
    return next(
        (candidate for candidate in (path / "__init__.py", path.with_suffix(".py")) if candidate.is_file()),
        None,
    )
