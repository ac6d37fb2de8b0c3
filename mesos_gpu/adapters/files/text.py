"""Text that people write, JSON or YAML, as values: no key twice, and no more values than memory holds."""

import json
from typing import Any, Final

from mesos_gpu.errors import MesosGpuError

MAX_VALUES: Final = 100_000  # that a file may stand for
MAX_DIGITS: Final = 1000  # of a number: to read a long one takes the square of its length


class BadFile(MesosGpuError):
    """The file does not hold what it should (EX_DATAERR)."""

    exit_code, http_status = 65, 400


class KeyTwice(BadFile):
    """An object of it has a key twice."""


def parse(text: str, name: str) -> Any:
    """What a JSON or YAML text says.

    Raises:
        BadFile: It is neither, it is too large, or an object in it has a key twice.
    """
    try:
        return _bounded(_parsed(text, name), name)
    except RecursionError as err:
        raise BadFile(f"{name} is nested too deeply", remedy="correct the file") from err


def _bounded(value: Any, name: str) -> Any:
    """Aliases of YAML let a few lines stand for more values than any memory holds, or for themselves."""
    sizes: dict[int, int] = {}

    def size(each: Any) -> int:
        if not isinstance(each, dict | list):
            return 1
        if id(each) not in sizes:
            sizes[id(each)] = MAX_VALUES + 1  # until it is known: what holds itself has no end
            inner = each.values() if isinstance(each, dict) else each
            sizes[id(each)] = 1 + sum(map(size, inner))
        return sizes[id(each)]

    if size(value) > MAX_VALUES:
        raise _too_many(name)
    return value


def _too_many(name: str) -> BadFile:
    what = f"{name} stands for more than {MAX_VALUES} values"
    return BadFile(what, remedy="use fewer aliases (*name), or several files")


def _parsed(text: str, name: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, value in pairs:
            if key in mapping:
                raise _twice(name, key)
            mapping[key] = value
        return mapping

    try:
        return json.loads(text, object_pairs_hook=once)
    except KeyTwice as without_place:
        raise _with_place(text, name, without_place) from None
    except ValueError as json_error:
        if name.endswith(".json"):
            raise BadFile(f"{name} is not JSON: {json_error}", remedy="correct the file") from json_error
    return _yaml(text, name)


def _with_place(text: str, name: str, twice: KeyTwice) -> BadFile:
    """A key that JSON has twice, with its line: as YAML, which most JSON is too but for tabs between its words."""
    try:
        _yaml(text.replace("\t", " "), name)
    except BadFile as error:
        return error if isinstance(error, KeyTwice) else twice
    return twice


def _twice(name: str, key: str, place: str = "") -> KeyTwice:
    return KeyTwice(f"{name} has {key!r} twice in one object{place}", remedy="leave one of them out")


def _loader(name: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """A reader that refuses a key that stands twice in a mapping, as YAML does. What `<<` merges may be
        overridden."""

        _merged = 0

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            """Merge, as long as all that is merged stays within bounds: what merges what merges grows by powers."""
            for key, value in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                        if isinstance(each, yaml.MappingNode):
                            self.flatten_mapping(each)
                            self._merged += len(each.value)
                            if self._merged > MAX_VALUES:
                                raise _too_many(name)
            super().flatten_mapping(node)

        def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                    raise _twice(name, key.value, _place(key.start_mark))
                seen.add((key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None)
            return node

        def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
            """The text of a value, if it is no number that takes for ever to read."""
            if node.tag.endswith((":int", ":float")) and len(node.value) > MAX_DIGITS:
                what = f"a number has more than {MAX_DIGITS} digits"
                raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
            return super().construct_scalar(node)

    return Loader


def _yaml(text: str, name: str) -> Any:
    import yaml

    try:
        return yaml.load(text, _loader(name))  # nosec B506 # it is a SafeLoader
    except yaml.YAMLError as err:
        place = _place(getattr(err, "problem_mark", None))
        what = f"{name} is neither JSON nor YAML{place}: {getattr(err, 'problem', None) or err}"
        raise BadFile(what, remedy="correct the file") from err
    except ValueError as err:  # of a moment that no calendar has
        raise BadFile(f"{name} has a value that is none: {err}", remedy="correct the file") from err


def _place(mark: Any) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
