"""Pack into one file all modules which a program imports at its start, compiled: it is read once, and no directory is
searched for them.

`begin` is the statement by which an interpreter takes modules from there. What is not in the file, or what another
Python compiled, comes from the directory that it was made of, as ever. The standard library's modules are in it, too:
finding and reading them took a tenth of an executor's start. Only the very build of Python whose they are takes them.
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

#: Modules that executors import: at the start, for the task's user, for the start of the task, after its end, and for a
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
KEPT_S: Final = 86400.0  # in the cache, where several installations have theirs
_LOADER: Final = Path(__file__).with_name("flat_loader.py")
#: Without a buffer the file is in memory once: a second copy would cost each start 350 page faults.
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
    """A module of a directory of packages. `file`: below it."""

    name: str
    file: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether other modules are in it."""
        return self.file.endswith("/__init__.py")


def begin(flat: str, root: str) -> str:
    """The statement after which modules come from a file that `packed` made, or from the directory `root`."""
    return _BEGIN.format(flat=flat, root=root)


def packed(root: Path, first: Iterable[str], seen: str = "") -> bytes:
    """Make the file.

    Args:
        root: Directory of packages.
        first: Modules there; they, and what they import at their tops, are packed.
        seen: Where that directory will be, for traces of errors; "": where it is.

    Raises:
        ModuleNotFoundError: One is not there.
        OSError: A source cannot be read.
    """
    loader = compile(lean(_LOADER.read_text()), str(_LOADER), "exec", dont_inherit=True)
    ours = list(reached(root, first))
    names = [name for each in ours for name in imports(each.tree.body)]
    modules = {
        each.name: (each.is_package, each.file, marshal.dumps(_compiled(seen or str(root), each)))
        for each in ours
    }
    standard = library.packed(names)
    codes = bytearray()
    index = _appended(codes, modules), _appended(codes, standard), sys.version, len(codes)
    return importlib.util.MAGIC_NUMBER + marshal.dumps((loader, index)) + codes


def _appended(
    codes: bytearray, modules: Mapping[str, library.Packed]
) -> dict[str, tuple[bool, str, int, int]]:
    """By name, what an index says: whether it is a package, its file, where in `codes` its code begins, its size."""
    index = {}
    for name, (package, file, code) in modules.items():
        index[name] = package, file, len(codes), len(code)
        codes += code
    return index


def kept(root: Path, first: Iterable[str], cache: Path) -> bytes:
    """The file, from a directory of this user's where it is kept until a source changes; where that cannot be written,
    or somebody else could, it is made anew.

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
    """What is kept.

    Raises:
        OSError: Nothing is, or somebody else could have written it.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        for status in (os.fstat(handle), os.stat(path.parent)):
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise PermissionError(errno.EPERM, f"others could have written {path}")
        return file.read()


def _state(root: Path, first: Iterable[str]) -> str:
    """What names these sources as they are now, to this Python."""
    told = blake2b(digest_size=16)
    told.update(repr((sys.version, str(root), *first)).encode())
    for top in ("isolator", "mesos_gpu", "volumes"):
        for path in sorted((root / top).rglob("*.py")):
            status = path.stat()
            told.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return told.hexdigest()


def _compiled(seen: str, module: Module) -> CodeType:
    return compile(without_columns(module.tree), f"{seen}/{module.file}", "exec", dont_inherit=True)


def reached(root: Path, first: Iterable[str]) -> Iterator[Module]:
    """What comes with an import of these modules, made lean; each once.

    Raises:
        As `packed`.
    """
    ours = {path.name for path in root.iterdir() if (path / "__init__.py").is_file()}
    wanted, seen = list(first), set[str]()
    for name in wanted:
        if _file(root, name) is None:
            raise ModuleNotFoundError(f"no module {name} below {root}", name=name)
    while wanted:
        name = wanted.pop()
        if name in seen or name.partition(".")[0] not in ours or (path := _file(root, name)) is None:
            continue
        seen.add(name)
        module = Module(name, str(path.relative_to(root)), lean(path.read_text(), str(path)))
        yield module
        wanted += above(name)
        wanted += [each for imported in imports(module.tree.body) for each in (imported, *above(imported))]


def _file(root: Path, name: str) -> Path | None:
    """A module's file; None: there is no such module, as of `from module import function`."""
    path = root.joinpath(*name.split("."))
    return next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None)
