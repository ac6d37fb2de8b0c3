"""Draw mutants of the product at random: `build/tools/bin/python scripts/mutants.py COUNT SEED PATH...`.

A mutant is a module with one small fault in a function. Prints one line of JSON for each: path, line, diff
and source. Most operators are those of mutmut; the others are here: dropped calls, operands, filters and
bounds. Text, messages, annotations, decorators and assertions have no mutants, nor has code outside of
functions.
"""

import difflib
import json
import multiprocessing
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import libcst as cst
from libcst import matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators
from mutmut.mutation.file_mutation import Mutation, MutationVisitor, OuterFunctionProvider
from mutmut.mutation.pragma_handling import IgnoredCode

_PASS: Final = cst.SimpleStatementLine([cst.Pass()])
_MESSAGE: Final = m.Call(m.Attribute(m.Name("logger")) | m.Name("print"))
_TYPING: Final = m.Call(m.OneOf(*(m.Name(name) for name in ("cast", "isinstance", "issubclass", "TypeVar"))))
#: Code that has no mutants, with all code below it. `strict=` of zip only asserts.
_EXCLUDED: Final = m.OneOf(
    _MESSAGE,
    _TYPING,
    m.Annotation(),
    m.Decorator(),
    m.Raise(),
    m.Assert(),
    m.FormattedString(),
    m.ConcatenatedString(),
    m.Arg(keyword=m.Name("strict")),
    m.FunctionDef(m.Name("__repr__") | m.Name("__str__")),
)


def drop_statement(node: cst.SimpleStatementLine) -> Iterable[cst.SimpleStatementLine]:
    """Leave out a call whose result is not used, a sum, or a deletion."""
    dropped = m.Expr(m.Call() | m.Await() | m.Yield()) | m.AugAssign() | m.Del()
    if m.matches(node, m.SimpleStatementLine([dropped])) and not m.findall(node, _MESSAGE):
        yield _PASS


def drop_bound(node: cst.Call) -> Iterable[cst.BaseExpression]:
    """Replace max(0, x) by 0 and by x; the same for min."""
    if m.matches(
        node, m.Call(m.Name("max") | m.Name("min"), [m.AtLeastN(m.Arg(keyword=None, star=""), n=2)])
    ):
        for each in node.args:
            yield each.value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def drop_order(node: cst.Call) -> Iterable[cst.Call]:
    """Replace sorted(x, ...) and reversed(x) by list(x)."""
    if m.matches(node, m.Call(m.Name("sorted") | m.Name("reversed"), [m.Arg(), m.ZeroOrMore()])):
        yield cst.Call(cst.Name("list"), [node.args[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)])


def drop_operand(node: cst.BooleanOperation) -> Iterable[cst.BaseExpression]:
    """Replace `a and b` by a and by b; the same for `or`."""
    for each in node.left, node.right:
        yield each.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def drop_filter(node: cst.CompFor) -> Iterable[cst.CompFor]:
    """Leave out a condition of a comprehension."""
    for each in node.ifs:
        yield node.with_changes(ifs=[other for other in node.ifs if other is not each])


def negate_condition(node: cst.If) -> Iterable[cst.If]:
    """Negate a condition that has no operator; the others have mutants of their operators."""
    if not m.matches(node.test, m.Comparison() | m.BooleanOperation() | m.UnaryOperation(m.Not())):
        test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


def subtract_one(node: cst.Integer) -> Iterable[cst.BaseExpression]:
    """Replace a number by the next smaller one; mutmut takes the next larger one."""
    value = node.evaluated_value - 1
    yield node.with_changes(value=str(value)) if value >= 0 else cst.parse_expression(f"({value})")


OPERATORS: Final[mutators.OPERATORS_TYPE] = [
    (cst.BaseNumber, mutators.operator_number),
    (cst.Name, mutators.operator_name),
    (cst.AugAssign, mutators.operator_augmented_assignment),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (cst.CSTNode, mutators.operator_keywords),
    (cst.CSTNode, mutators.operator_swap_op),
    (cst.Match, mutators.operator_match),
    (cst.IfExp, mutators.operator_if_exp),
    (cst.SimpleStatementLine, drop_statement),
    (cst.Call, drop_bound),
    (cst.Call, drop_order),
    (cst.BooleanOperation, drop_operand),
    (cst.CompFor, drop_filter),
    (cst.If, negate_condition),
    (cst.Integer, subtract_one),
]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one fault.

    Attributes:
        path: Path of the module, from the root of the repository.
        line: Line of the fault.
        diff: The fault, without a head.
        source: Source of the whole module.
    """

    path: str
    line: int
    diff: str
    source: str


class Visitor(MutationVisitor):
    """Mutants of one module, in the order of its lines."""

    def __init__(self) -> None:
        """Create a visitor that ignores no line."""
        super().__init__(OPERATORS, IgnoredCode(set(), set(), set()))

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        return m.matches(node, _EXCLUDED)

    def _should_mutate_node(self, node: cst.CSTNode) -> bool:
        return isinstance(self.get_metadata(OuterFunctionProvider, node, None), cst.FunctionDef)


def mutations(source: str) -> tuple[MetadataWrapper, list[Mutation]]:
    """Find all mutations of a module."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    visitor = Visitor()
    wrapper.visit(visitor)
    return wrapper, visitor.mutations


def count(path: Path) -> int:
    """Count the mutants of a module."""
    return len(mutations(path.read_text())[1])


def make(path: Path, numbers: Sequence[int]) -> Iterator[Mutant]:
    """Make the mutants of these numbers of one module."""
    source = path.read_text()
    wrapper, mutants = mutations(source)
    positions = wrapper.resolve(PositionProvider)
    for number in numbers:
        old, new = mutants[number].original_node, mutants[number].mutated_node
        changed = wrapper.module.deep_replace(old, new)
        assert isinstance(changed, cst.Module)
        lines = difflib.unified_diff(source.splitlines(), changed.code.splitlines(), n=1, lineterm="")
        diff = "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
        yield Mutant(str(path), positions[old].start.line, diff, changed.code)


def draw(number: int, seed: int, roots: Iterable[str]) -> Iterator[Mutant]:
    """Draw mutants below some folders, all with the same probability."""
    paths = sorted(
        path
        for root in roots
        for path in ([Path(root)] if Path(root).is_file() else Path(root).rglob("*.py"))
    )
    with multiprocessing.Pool() as pool:
        counts = pool.map(count, paths, chunksize=4)
    every = [(path, index) for path, size in zip(paths, counts, strict=True) for index in range(size)]
    print(f"{len(every)} mutants in {len(paths)} modules", file=sys.stderr)
    drawn: dict[Path, list[int]] = {}
    for path, index in random.Random(seed).sample(every, min(number, len(every))):
        drawn.setdefault(path, []).append(index)
    for path, numbers in drawn.items():
        yield from make(path, numbers)


def main(arguments: Sequence[str]) -> None:
    """Print the drawn mutants."""
    number, seed, *roots = arguments
    for each in draw(int(number), int(seed), roots):
        print(json.dumps(asdict(each)))


if __name__ == "__main__":
    main(sys.argv[1:])
