"""Modules of Python's standard library that programs import, compiled, for one file that has them all.

`imports` finds the modules that a module imports when it is executed.
"""

import ast
import importlib.util
import marshal
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Final

from mesos_gpu.install.lean import late_patterns, without_columns

#: Imports to move into the few functions that use them, as they would slow each start, by module.
LATE: Final = {"pathlib": frozenset({"urllib.parse"})}
#: Modules that end with taking all names from a C module: the C module is used alone, without the Python version.
IN_C: Final = {"datetime": "_datetime"}


#: Whether a module is a package, its file, its marshalled code.
Packed = tuple[bool, str, bytes]


def packed(names: Iterable[str]) -> dict[str, Packed]:
    """Return the code of these modules and of all that they import, for this build of Python.

    Args:
        names: Modules; those not of the library, not written in Python, or frozen into the interpreter are skipped.

    Returns:
        Packed modules by name.
    """
    pending, modules = [*names], dict[str, Packed]()
    while pending:
        name = pending.pop()
        if name in modules or (spec := _spec(name)) is None:
            continue
        assert spec.origin is not None
        tree = _with_late_imports(_source(name, spec.origin), LATE.get(name, frozenset()))
        late_patterns(tree)
        without_columns(tree)
        package = spec.submodule_search_locations is not None
        code = compile(tree, spec.origin, "exec", dont_inherit=True, optimize=2)  # as of `python -OO`
        modules[name] = package, spec.origin, marshal.dumps(code)
        within = name if package else name.rpartition(".")[0]
        pending += [
            module_name
            for imported in imports(tree.body, within)
            for module_name in (imported, *above(imported))
        ]
    return modules


def imports(body: Iterable[ast.stmt], package: str = "") -> Iterator[str]:
    """Yield the modules that statements import when their module is executed, without functions and `__main__` parts.

    Args:
        body: Statements of the module.
        package: Package to which relative imports refer.
    """
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = ".".join(part for part in (package if node.level else "", node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Try) or (
            isinstance(node, ast.If) and "__main__" not in ast.unparse(node.test)
        ):
            yield from imports([*node.body, *node.orelse], package)


def above(name: str) -> list[str]:
    """Return the packages that contain a module, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _spec(name: str) -> ModuleSpec | None:
    if name.partition(".")[0] not in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (
        ModuleNotFoundError,
        ValueError,
    ):  # the name is a function of a module, or a module without a spec
        return None
    return spec if spec is not None and isinstance(spec.loader, SourceFileLoader) else None


def _source(name: str, file: str) -> ast.Module:
    """Return the source of a module; that of `IN_C` modules only imports the C module."""
    in_c = IN_C.get(name)
    if in_c is not None and importlib.util.find_spec(in_c) is not None:
        return ast.parse(f"from {in_c} import *\nfrom {in_c} import __doc__")
    return ast.parse(Path(file).read_bytes())


def _with_late_imports(tree: ast.Module, modules: frozenset[str]) -> ast.Module:
    """Move imports from these modules into the functions that use them, and return the tree."""
    for node in [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module in modules]:
        names = {alias.asname or alias.name for alias in node.names}
        users = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and names & _used(node)]
        tree.body.remove(node)
        for user in users:
            user.body.insert(0, node)
    return tree


def _used(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
