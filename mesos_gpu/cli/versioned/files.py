"""Versioned documents as YAML files, and their differences."""

import sys
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

from mesos_gpu.adapters.files.versioned import Form, Read
from mesos_gpu.cli import output
from mesos_gpu.cli.versioned.kept import Kept, Shown


def read_document(form: Form[Any], file: str) -> Read[Any]:
    """Read the document of a JSON or YAML file; "-" for stdin.

    Raises:
        BadFile: The file is invalid; all problems are listed, each with its place.
    """
    if file == "-":
        return form.read(sys.stdin.read(), "stdin")
    return form.read(Path(file).read_text(encoding="utf-8"), file)


def to_yaml(kind: Kept, shown: Shown, *, with_version: bool = True) -> str:
    """Return a document as YAML, without fields that have defaults."""
    return yaml_of({**({"version": shown["version"]} if with_version else {}), **kind.body(shown)})


def yaml_of(body: Mapping[str, Any]) -> str:
    """Return a part of a document as YAML."""
    import yaml

    return yaml.dump(
        body, Dumper=_dumper(), sort_keys=False, allow_unicode=_is_plain(body), width=output.width()
    )


def difference(kind: Kept, old: Shown, new: Shown, source: str) -> Iterator[str]:
    """Yield the lines of a unified diff of two documents, ignoring their versions; none if they are equal.

    `source` is the name of the new document.
    """
    before, after = (to_yaml(kind, document, with_version=False).splitlines() for document in (old, new))
    yield from unified_diff(before, after, f"version {old['version']}", source, lineterm="")


def without(value: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without fields that have their defaults."""
    return {key: item for key, item in value.items() if defaults.get(key) != item}


def _dumper() -> Any:
    """Return the YAML dumper, a class made here so that yaml is imported only when needed."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """YAML dumper with lists of texts on one line, and without anchors."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def write_indicator(self, indicator: str, *how: bool, **more: bool) -> None:
            super().write_indicator(indicator, *how, **more)
            ahead = len(getattr(self.event, "value", None) or "") + len(" ,")
            if indicator == "," and self.column + ahead > self.best_width:
                self.write_indent()  # break the line before an item that is too long

        def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
            flat = all(not isinstance(item, dict | list) for item in sequence)
            return super().represent_sequence(tag, sequence, flow_style=flat)

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
            return super().increase_indent(flow, False)

    Dumper.add_representer(
        list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data)
    )
    Dumper.add_representer(float, _number)
    return Dumper


def _number(dumper: Any, value: float) -> Any:
    """Represent whole numbers without a fraction."""
    if value.is_integer():
        return dumper.represent_int(int(value))
    return dumper.represent_float(value)


def _is_plain(value: Any) -> bool:
    """Return whether all texts are printable, so that a terminal can show them unescaped."""
    if isinstance(value, dict):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, str) or value.isprintable()
