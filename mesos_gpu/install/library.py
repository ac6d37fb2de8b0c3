"""The modules of Python's standard library that programs import, compiled, for one file that has them all.

`imports` says what a module imports when it is run.
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

#: What is imported for the sake of few functions, and costs each start: such a function imports it when it is called.
LATE: Final = {"pathlib": frozenset({"urllib.parse"})}
#: What is written in C, too, and takes all names from there: the same in Python would be made first, and dropped.
IN_C: Final = {"datetime": "_datetime"}


#: Of a module: whether it is a package, its file, its marshalled code.
Packed = tuple[bool, str, bytes]


def packed(names: Iterable[str]) -> dict[str, Packed]:
    """These modules, and what comes with an import of them, as this Python has them.

    Args:
        names: Of modules; what is not of the library, not written in Python, or frozen into the interpreter is left.

    Returns:
        By name.
    """
    wanted, modules = [*names], dict[str, Packed]()
    while wanted:
        name = wanted.pop()
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
        wanted += [each for imported in imports(tree.body, within) for each in (imported, *above(imported))]
    return modules


def imports(body: Iterable[ast.stmt], package: str = "") -> Iterator[str]:
    """What statements import when a module is run, not what its functions do, nor what it does as a program.

    Args:
        body: The statements.
        package: To which imports are relative.
    """
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = ".".join(each for each in (package if node.level else "", node.module) if each)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Try) or (
            isinstance(node, ast.If) and "__main__" not in ast.unparse(node.test)
        ):
            yield from imports([*node.body, *node.orelse], package)


def above(name: str) -> list[str]:
    """The packages that a module is in, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _spec(name: str) -> ModuleSpec | None:
    if name.partition(".")[0] not in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):  # it is a function of a module; a module has no spec
        return None
    return spec if spec is not None and isinstance(spec.loader, SourceFileLoader) else None


def _source(name: str, file: str) -> ast.Module:
    """What a module does when it is imported."""
    in_c = IN_C.get(name)
    if in_c is not None and importlib.util.find_spec(in_c) is not None:
        return ast.parse(f"from {in_c} import *\nfrom {in_c} import __doc__")
    return ast.parse(Path(file).read_bytes())


def _with_late_imports(tree: ast.Module, modules: frozenset[str]) -> ast.Module:
    """The module with imports from these others moved into the functions that use them."""
    for node in [each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module in modules]:
        names = {alias.asname or alias.name for alias in node.names}
        users = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and names & _used(each)]
        tree.body.remove(node)
        for each in users:
            each.body.insert(0, node)
    return tree


def _used(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
