"""The document as a file: YAML that is written for people, and read with all problems at once."""

import sys
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

from mesos_gpu.adapters.files.access import Read, access_of

_ROLE_DEFAULTS: Final[Mapping[str, Any]] = {
    "users": [], "images": ["*"], "volumes": [], "highest_priority": 0, "must_be_preemptible": False,
}  # fmt: skip
_BINDING_DEFAULTS: Final[Mapping[str, Any]] = {"names": [], "groups": [], "queues": ["*"], "apps": ["/*"]}


def read_document(file: str) -> Read:
    """The document of a file of JSON or YAML; "-": stdin.

    Raises:
        BadFile: It is none, or has problems; all are listed, each with its place.
    """
    if file == "-":
        return access_of(sys.stdin.read(), "stdin")
    return access_of(Path(file).read_text(encoding="utf-8"), file)


def to_yaml(shown: Mapping[str, Any], *, with_version: bool = True) -> str:
    """A document as a file: what has its default is left out."""
    import yaml

    body: dict[str, Any] = {"version": shown["version"]} if with_version else {}
    body["roles"] = [_role(role) for role in shown["roles"]]
    body["bindings"] = [_without(binding, _BINDING_DEFAULTS) for binding in shown["bindings"]]
    body["unix_users"], body["shares"] = dict(shown["unix_users"]), dict(shown["shares"])
    return yaml.dump(body, Dumper=_dumper(), sort_keys=False, allow_unicode=_is_plain(body), width=100)


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Lists of texts on one line, and no anchors: what is alike stands there twice."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
            flat = all(not isinstance(item, dict | list) for item in sequence)
            return super().represent_sequence(tag, sequence, flow_style=flat)

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
            return super().increase_indent(flow, False)

    Dumper.add_representer(
        list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data)
    )
    return Dumper


def _is_plain(value: Any) -> bool:
    """Whether all texts are printable, so that a terminal may be shown them as they are."""
    if isinstance(value, dict):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, str) or value.isprintable()


def _role(role: Mapping[str, Any]) -> dict[str, Any]:
    limits = _without(role["limits"], _ROLE_DEFAULTS)
    return {"name": role["name"], "rights": role["rights"], **({"limits": limits} if limits else {})}


def _without(value: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in value.items() if defaults.get(key) != each}


def difference(old: Mapping[str, Any], new: Mapping[str, Any], source: str) -> Iterator[str]:
    """The lines of a unified diff of two documents, versions not counted; none: they say the same.

    `source`: where the new one is from.
    """
    before, after = (to_yaml(each, with_version=False).splitlines() for each in (old, new))
    yield from unified_diff(before, after, f"version {old['version']}", source, lineterm="")
