"""Removal of all code from modules that only readers and type checkers need, for programs that start for each task.

Importing `typing` and `dataclasses`, and creating classes with them, takes several times as long as starting an
interpreter. So classes are written out here, once, when an archive is unpacked or a cluster is started: a class of
@dataclass or NamedTuple gets the methods that it would have got, as plain code. Annotations, docstrings and imports
that only annotations used are removed. Regular expressions of a module are compiled on first use. Lines keep their
numbers. Constructs that are not understood stay unchanged.
"""

import ast
import importlib
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

_METHODS: Final = """
def __repr__(self):
    return self.__class__.__qualname__ + f"({told})"
def __eq__(self, other):
    if other.__class__ is self.__class__:
        return {mine} == {others}
    return NotImplemented
"""
_FROZEN: Final = """
def __hash__(self):
    return hash({mine})
def __setattr__(self, name, value):
    from dataclasses import FrozenInstanceError
    raise FrozenInstanceError(f"cannot assign to field {{name!r}}")
def __delattr__(self, name):
    from dataclasses import FrozenInstanceError
    raise FrozenInstanceError(f"cannot delete field {{name!r}}")
def __getstate__(self):
    return [getattr(self, name) for name in self.__slots__]
def __setstate__(self, state):
    for name, value in zip(self.__slots__, state):
        object.__setattr__(self, name, value)
"""
_TUPLE: Final = """
@classmethod
def _make(cls, iterable):
    return cls(*iterable)
def _replace(self, /, **changes):
    made = self.__class__(*[changes.pop(name, value) for name, value in zip(self._fields, self)])
    if changes:
        raise ValueError(f"Got unexpected field names: {{list(changes)!r}}")
    return made
def _asdict(self):
    return dict(zip(self._fields, self))
def __repr__(self):
    return self.__class__.__name__ + f"({told})"
def __getnewargs__(self):
    return tuple(self)
"""
#: A dataclass that defines one of these itself is not written out, as the generated method would replace it.
_MADE: Final = frozenset(
    {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__"}
)
_HELPERS: Final = (
    "from mesos_gpu.written import Fields as _Fields, Late as _Late, Named as _Named, at as _at\n"
)
_PATTERN: Final = "from mesos_gpu.written import Pattern as _Pattern\n"
#: Functions of dataclasses that mesos_gpu.written replaces.
WRITTEN: Final = frozenset({"asdict", "astuple", "replace"})
#: Modules that add enumerations or converters to a C module, by name, with that C module.
MADE_OF: Final = {"signal": "_signal", "sqlite3": "_sqlite3"}
_Node = TypeVar("_Node", bound=ast.AST)


class _Field(NamedTuple):
    """A field of a class to write out. `late`: `default` is a factory; `told`: the field is shown by repr."""

    name: str
    default: ast.expr | None = None
    late: bool = False
    told: bool = True


def lean(source: str, filename: str = "<source>") -> ast.Module:
    """Return the syntax tree of an equivalent module that imports less.

    Raises:
        SyntaxError: The source is not Python.
    """
    tree = ast.parse(source, filename)
    lean = _Lean(_meanings(tree))
    lean.visit(tree)
    late_patterns(tree)
    if lean.written:
        tree.body[_first(tree) : _first(tree)] = ast.parse(_HELPERS).body
    _drop_unused_imports(tree)
    _import_written_in_c(tree)
    return ast.fix_missing_locations(tree)


def late_patterns(tree: ast.Module) -> None:
    """Compile regular expressions that a module assigns at module level on first use; changes the tree."""
    values = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    patterns = [
        node for node in values if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile"
    ]
    for call in patterns:
        call.func = _like(call.func, ast.parse("_Pattern", mode="eval").body)
    if patterns:
        tree.body[_first(tree) : _first(tree)] = ast.parse(_PATTERN).body
        ast.fix_missing_locations(tree)


def without_columns(tree: ast.Module) -> ast.Module:
    """Remove columns from positions, a quarter of the compiled code, and return the tree: tracebacks name lines."""
    for node in ast.walk(tree):
        if "lineno" in node._attributes:
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
            node.end_lineno = node.lineno  # type: ignore[attr-defined]
    return tree


def _meanings(tree: ast.Module) -> dict[str, str]:
    """Return the names imported from typing and dataclasses: `from typing import Any as A` gives A: typing.Any."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("typing", "dataclasses")
        for alias in node.names
    }


class _Lean(ast.NodeTransformer):
    def __init__(self, meanings: dict[str, str]) -> None:
        self._meanings, self.written = meanings, 0
        self._kept: set[int] = set()  # annotations that stay

    def _meant(self, node: ast.expr) -> str:
        return self._meanings.get(node.id, "") if isinstance(node, ast.Name) else ""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._body_of(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        arguments = node.args
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ):
            if argument is not None:
                argument.annotation = None
        return self._body_of(node)

    def _body_of(self, node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        self.generic_visit(node)
        if not node.body and not isinstance(node, ast.Module):
            node.body = [ast.copy_location(ast.Pass(), node)]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        """Import functions of dataclasses from mesos_gpu.written, which needs no dataclasses."""
        if node.module != "dataclasses":
            return node
        own = [alias for alias in node.names if alias.name in WRITTEN]
        node.names = [alias for alias in node.names if alias.name not in WRITTEN]
        written = ast.ImportFrom(module="mesos_gpu.written", names=own, level=0)
        both: list[ast.stmt] = [ast.copy_location(written, node), node]
        return [node_ for node_ in both if isinstance(node_, ast.ImportFrom) and node_.names]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if id(node) in self._kept:
            return node
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Replace NewType and Literal by a placeholder that other modules can still use in annotations."""
        value = node.value
        callee = value.func if isinstance(value, ast.Call) else getattr(value, "value", None)
        if isinstance(callee, ast.Name) and self._meant(callee) in ("typing.NewType", "typing.Literal"):
            self.written += 1
            node.value = _like(value, ast.parse("_Named()", mode="eval").body)
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        if self._meant(node.test) == "typing.TYPE_CHECKING":
            return [visited for statement in node.orelse if (visited := self.visit(statement)) is not None]
        self.generic_visit(node)
        node.body = node.body or [ast.copy_location(ast.Pass(), node)]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.bases = [base for base in node.bases if self._meant(base) != "typing.Protocol"]
        if [self._meant(base) for base in node.bases] == ["typing.NamedTuple"] and not node.keywords:
            self._write(node, "tuple")
        elif kind := self._dataclass(node):
            self._write(node, kind)
        if node.decorator_list or [base for base in node.bases if not _is_tuple(base)]:
            # A decorator or base class may create fields from the annotations.
            self._kept |= {id(statement) for statement in node.body if isinstance(statement, ast.AnnAssign)}
        return self._body_of(node)

    def _dataclass(self, node: ast.ClassDef) -> str:
        """Return "frozen" or "open" for a dataclass that can be written out; "" for other classes."""
        call = node.decorator_list[0] if len(node.decorator_list) == 1 else None
        if node.bases or node.keywords or not isinstance(call, ast.Call) or call.args:
            return ""
        options = {str(keyword.arg): getattr(keyword.value, "value", None) for keyword in call.keywords}
        own = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}
        if self._meant(call.func) != "dataclasses.dataclass" or own & _MADE:
            return ""
        return {("slots",): "open", ("frozen", "slots"): "frozen"}.get(
            tuple(sorted(options)) if set(options.values()) == {True} else (), ""
        )

    def _write(self, node: ast.ClassDef, kind: str) -> None:
        """Write a class out as plain code, unless it has a field that is not understood."""
        fields = self._fields(node)
        if fields is None:
            return
        self.written += 1
        body = [statement for statement in node.body if not (isinstance(statement, ast.AnnAssign) and fields)]
        docstring = body[:1] if ast.get_docstring(node, clean=False) is not None else []
        own = body[len(docstring) :]
        post = any(
            isinstance(statement, ast.FunctionDef) and statement.name == "__post_init__" for statement in own
        )
        statements = (
            _tuple(fields) if kind == "tuple" else _dataclass(fields, frozen=kind == "frozen", post=post)
        )
        node.bases = [ast.Name("tuple", ast.Load())] if kind == "tuple" else []
        node.decorator_list = []
        node.body = [*docstring, *(_like(node, statement) for statement in statements), *own]

    def _fields(self, node: ast.ClassDef) -> list[_Field] | None:
        """Return the fields in their order; None if a field is of a kind that is not understood."""
        fields = []
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign):
                field = self._field(statement)
                if field is None:
                    return None
                fields.append(field)
        return fields

    def _field(self, node: ast.AnnAssign) -> _Field | None:
        special = any(word in ast.unparse(node.annotation) for word in ("ClassVar", "InitVar", "KW_ONLY"))
        if not isinstance(node.target, ast.Name) or special or node.target.id.startswith("__"):
            return None
        name, value = node.target.id, node.value
        if not isinstance(value, ast.Call) or self._meant(value.func) != "dataclasses.field":
            return _Field(name, value)
        options = {keyword.arg: keyword.value for keyword in value.keywords}
        shown = options.pop("repr", ast.Constant(value=True))
        late = options.pop("default_factory", None)
        default = options.pop("default", None)
        if value.args or options or not isinstance(shown, ast.Constant):
            return None
        return _Field(name, late or default, late is not None, bool(shown.value))


def _is_tuple(base: ast.expr) -> bool:
    return isinstance(base, ast.Name) and base.id == "tuple"


def _dataclass(fields: list[_Field], *, frozen: bool, post: bool) -> list[ast.stmt]:
    """Return the statements that replace the body of a dataclass."""
    names = [field.name for field in fields]
    mine, others = (_row(f"{who}.{name}" for name in names) for who in ("self", "other"))
    lines = [f"__slots__ = __match_args__ = {_row(map(repr, names))}"]
    lines += [
        f"__dataclass_fields__ = _Fields({', '.join(repr(each.name) for each in fields if not each.told)})"
    ]
    lines += [f"def __init__(self, {', '.join(names)}):"]
    for field in fields:
        if field.late:
            lines += [
                f"    if {field.name}.__class__ is _Late:",
                f"        {field.name} = {field.name}.make()",
            ]
    if frozen:
        lines += ["    put = object.__setattr__"] if fields else []
        lines += [f"    put(self, {name!r}, {name})" for name in names]
    else:
        lines += [f"    self.{name} = {name}" for name in names]
    lines += ["    self.__post_init__()"] if post else [] if fields else ["    pass"]
    text = _METHODS.format(told=_telling(fields), mine=mine, others=others)
    text += _FROZEN.format(mine=mine) if frozen else "__hash__ = None\n"
    statements = ast.parse("\n".join(lines) + text).body
    _give_defaults(statements[2], fields)
    return statements


def _tuple(fields: list[_Field]) -> list[ast.stmt]:
    names = [field.name for field in fields]
    lines = ["__slots__ = ()", f"_fields = __match_args__ = {_row(map(repr, names))}"]
    lines += [f"def __new__(_cls, {', '.join(names)}):", f"    return tuple.__new__(_cls, {_row(names)})"]
    lines += [f"{name} = _at({number}, None)" for number, name in enumerate(names)]
    statements = ast.parse("\n".join(lines) + _TUPLE.format(told=_telling(fields))).body
    _give_defaults(statements[2], fields)
    return statements


def _telling(fields: list[_Field]) -> str:
    return ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in fields if field.told)


def _row(items: Iterable[str]) -> str:
    return "(" + "".join(f"{item}, " for item in items) + ")"


def _give_defaults(function: ast.stmt, fields: list[_Field]) -> None:
    """Set defaults in the function's signature, so that they are evaluated once, when the class is created."""
    assert isinstance(function, ast.FunctionDef)
    for field in fields:
        if field.default is not None:
            late = ast.Call(func=ast.Name("_Late", ast.Load()), args=[field.default], keywords=[])
            function.args.defaults.append(late if field.late else field.default)


def _like(node: ast.AST, generated: _Node) -> _Node:
    """Give generated nodes the line of the node that they replace, and return them."""
    for child in ast.walk(generated):
        if "lineno" in child._attributes:
            ast.copy_location(child, node)
    return generated


def _first(tree: ast.Module) -> int:
    """Return the index of the first statement that is not an import from __future__."""
    return next(
        (
            number
            for number, statement in enumerate(tree.body)
            if not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")
        ),
        len(tree.body),
    )


def _import_written_in_c(tree: ast.Module) -> None:
    """Import the C modules of `MADE_OF` directly, where they have all attributes that the module uses."""
    for node in tree.body:
        if not isinstance(node, ast.Import) or len(node.names) != 1 or node.names[0].asname is not None:
            continue
        (alias,) = node.names
        if alias.name not in MADE_OF:
            continue
        made_of = importlib.import_module(MADE_OF[alias.name])
        used = [
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == alias.name
        ]
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == alias.name]
        if len(used) == len(names) and all(hasattr(made_of, name) for name in used):
            alias.name, alias.asname = MADE_OF[alias.name], alias.name


def _drop_unused_imports(tree: ast.Module) -> None:
    """Remove module-level imports whose names are not used any more; `import a.b` binds a."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for node in tree.body[:]:
        if not isinstance(node, ast.Import | ast.ImportFrom) or getattr(node, "module", "") == "__future__":
            continue
        node.names = [
            alias
            for alias in node.names
            if (alias.asname or alias.name.partition(".")[0]) in used or alias.name == "*"
        ]
        if not node.names:
            tree.body.remove(node)
