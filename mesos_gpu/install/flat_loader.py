"""Importer at the beginning of a flat file. The code that executes it provides `INDEX`, `DATA` and `ROOT`."""

import marshal
import sys
from _frozen_importlib import ModuleSpec
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class Flat:
    """Finder and loader of the packed modules.

    Args:
        index: Modules below `root` by name, each with: whether it is a package, its file, start and size of its
            code; Python's library modules in that form; the version of Python they belong to; the size of all code.
        data: Bytes that end with the code of all modules.
        root: Directory in which the modules' files are.
    """

    def __init__(
        self,
        index: tuple[
            Mapping[str, tuple[bool, str, int, int]], Mapping[str, tuple[bool, str, int, int]], str, int
        ],
        data: bytes,
        root: str,
    ) -> None:
        modules, library, python, size = index
        self._modules = {**modules, **library} if python == sys.version else modules
        self._codes, self._root = memoryview(data)[len(data) - size :], root

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a packed module; None if it is not packed."""
        entry = self._modules.get(name)
        if entry is None:
            return None
        package, file, _, _ = entry
        where = file if file[0] == "/" else f"{self._root}/{file}"
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=where, is_package=package)
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [where.rpartition("/")[0]]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, so that Python creates the module object."""
        return

    def exec_module(self, module: ModuleType) -> None:
        """Execute the code of a module."""
        _, _, begin, size = self._modules[module.__name__]
        code = marshal.loads(self._codes[begin : begin + size])  # nosec B302 # from the file that has this code
        exec(code, module.__dict__)  # nosec B102 # as above


finder: Any = Flat(INDEX, DATA, ROOT)  # type: ignore[name-defined]  # noqa: F821
sys.meta_path.insert(0, finder)
