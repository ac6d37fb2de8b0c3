"""Parser of JSON or YAML texts from users: duplicate keys are errors, and the number of values is limited."""

import json
from typing import Any, Final

from mesos_gpu.errors import MesosGpuError

MAX_VALUES: Final = 100_000  # that a file may have after expansion of aliases
MAX_DIGITS: Final = 1000  # of a number: reading takes time proportional to the square of its length


class BadFile(MesosGpuError):
    """The file has invalid content (exit status EX_DATAERR)."""

    exit_code, http_status = 65, 400


class KeyTwice(BadFile):
    """An object of the file has a duplicate key."""


def parse(text: str, name: str) -> Any:
    """Return the value of a JSON or YAML text.

    Raises:
        BadFile: The text is neither, it is too large, or an object in it has a duplicate key.
    """
    try:
        return _bounded(_parsed(text, name), name)
    except RecursionError as err:
        raise BadFile(f"{name} is nested too deeply", remedy="correct the file") from err


def _bounded(value: Any, name: str) -> Any:
    """Check the number of values: aliases of YAML let few lines stand for values without limit, or for themselves."""
    sizes: dict[int, int] = {}

    def size(value_: Any) -> int:
        if not isinstance(value_, dict | list):
            return 1
        if id(value_) not in sizes:
            # Placeholder until the size is known, so that a value that contains itself counts as too large.
            sizes[id(value_)] = MAX_VALUES + 1
            inner = value_.values() if isinstance(value_, dict) else value_
            sizes[id(value_)] = 1 + sum(map(size, inner))
        return sizes[id(value_)]

    if size(value) > MAX_VALUES:
        raise _too_many(name)
    return value


def _too_many(name: str) -> BadFile:
    what = f"{name} has more than {MAX_VALUES} values"
    return BadFile(what, remedy="use fewer aliases (*name), or several files")


def _parsed(text: str, name: str) -> Any:
    """Return the value of a text: as JSON, or else as YAML unless the name ends in .json."""

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
    """Return a duplicate key of JSON with its line, found by YAML, which most JSON is apart from tabs."""
    try:
        _yaml(text.replace("\t", " "), name)
    except BadFile as error:
        return error if isinstance(error, KeyTwice) else twice
    return twice


def _twice(name: str, key: str, place: str = "") -> KeyTwice:
    return KeyTwice(f"{name} has {key!r} twice in one object{place}", remedy="remove one of them")


def _loader(name: str) -> Any:
    """Return a class of YAML loaders for a file with this name."""
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML loader that refuses duplicate keys in a mapping; keys merged by `<<` may be overridden."""

        _merged = 0

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            """Merge mappings within a limit: nested merges grow exponentially."""
            for key, value in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                        if isinstance(merged, yaml.MappingNode):
                            self.flatten_mapping(merged)
                            self._merged += len(merged.value)
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
            """Return the text of a scalar, unless it is a number that takes too long to read."""
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
    except ValueError as err:  # e.g. an impossible date
        raise BadFile(f"{name} has an invalid value: {err}", remedy="correct the file") from err


def _place(mark: Any) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
