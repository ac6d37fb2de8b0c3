"""What a flat file begins with: the finder of its modules. Whoever runs this gives it `MODULES` and `ROOT`."""

import marshal
import sys
from _frozen_importlib import ModuleSpec
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class Flat:
    """Finds and loads modules; `modules`: by name whether it is a package, its file below `root`, and its code."""

    def __init__(self, modules: Mapping[str, tuple[bool, str, bytes]], root: str) -> None:
        """Not yet asked by imports."""
        self._modules, self._root = modules, root

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Where a module comes from: from here, if it is packed."""
        entry = self._modules.get(name)
        if entry is None:
            return None
        package, file, _ = entry
        where = f"{self._root}/{file}"
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
        code = marshal.loads(self._modules[module.__name__][2])  # nosec B302 # its owner is this code's, too
        exec(code, module.__dict__)  # nosec B102 # as above


finder: Any = Flat(MODULES, ROOT)  # type: ignore[name-defined]  # noqa: F821
sys.meta_path.insert(0, finder)
