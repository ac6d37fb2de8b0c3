"""What a flat file begins with: the finder of its modules. Whoever runs this gives it `INDEX`, `DATA` and `ROOT`."""

import marshal
import sys
from _frozen_importlib import ModuleSpec
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class Flat:
    """Finds and loads modules."""

    def __init__(
        self,
        index: tuple[
            Mapping[str, tuple[bool, str, int, int]], Mapping[str, tuple[bool, str, int, int]], str, int
        ],
        data: bytes,
        root: str,
    ) -> None:
        """Not yet asked by imports.

        Args:
            index: Of modules below `root`: by name whether it is a package, its file, where its code begins, and its
                size; the same of modules of Python's library; of which Python these are; the size of all code.
            data: With all code at its end.
            root: A directory.
        """
        modules, library, python, size = index
        self._modules = {**modules, **library} if python == sys.version else modules
        self._codes, self._root = memoryview(data)[len(data) - size :], root

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Where a module comes from: from here, if it is packed."""
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
        """Leave it to Python to make one."""
        return

    def exec_module(self, module: ModuleType) -> None:
        """Run its code, which came in one file with this."""
        _, _, begin, size = self._modules[module.__name__]
        code = marshal.loads(self._codes[begin : begin + size])  # nosec B302 # its owner is this code's, too
        exec(code, module.__dict__)  # nosec B102 # as above


finder: Any = Flat(INDEX, DATA, ROOT)  # type: ignore[name-defined]  # noqa: F821
sys.meta_path.insert(0, finder)
