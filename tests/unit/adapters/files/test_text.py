"""Files that people write: small ones that stand for much are refused soon."""

import time

import pytest

from mesos_gpu.adapters.files.text import MAX_DIGITS, MAX_VALUES, BadFile, parse


def _grown(line: str, levels: int = 12) -> str:
    """Each line refers nine times to the one before."""
    lines = ["a0: &a0 {k0: 1}"]
    lines += [
        line.format(n=n, before=", ".join([f"*a{n - 1}"] * 9), one=f"*a{n - 1}") for n in range(1, levels)
    ]
    return "\n".join(lines)


HOSTILE = {
    "aliases of aliases": (_grown("a{n}: &a{n} [{before}]"), "has more than"),
    "merges of merges": (_grown("a{n}: &a{n} {{<<: [{before}], k{n}: 1}}"), "has more than"),
    "many merges of one": (
        "a: &a {" + ", ".join(f"k{n}: 1" for n in range(500)) + "}\nb: {<<: [" + "*a, " * 500 + "*a]}",
        "has more than",
    ),
    "what holds itself": ("a: &a [*a]", "has more than"),
    "what merges itself": ("a: &a {<<: *a}", "nested too deeply"),
    "brackets": ("[" * 100_000, "nested too deeply"),
    "braces": ("a: " + "{b: " * 50_000, "nested too deeply"),
    "a long number": ("a: " + "9" * 100_000, f"more than {MAX_DIGITS} digits"),
    "a long number to the base of 60": ("a: 1" + ":59" * 100_000, f"more than {MAX_DIGITS} digits"),
    "a long number of JSON": ('{"a": ' + "9" * 100_000 + "}", f"more than {MAX_DIGITS} digits"),
    "a day that no calendar has": ("a: 2001-99-99", "has an invalid value"),
    "an object of Python's": ("!!python/object/apply:os.system ['true']", "neither JSON nor YAML"),
}


@pytest.mark.parametrize(("text", "why"), HOSTILE.values(), ids=HOSTILE)
def test_yaml_file_that_expands_to_much_is_refused_soon(text: str, why: str) -> None:
    began = time.process_time()
    with pytest.raises(BadFile, match=why):
        parse(text, "f.yaml")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "merges", [MAX_VALUES // 100, pytest.param(MAX_VALUES // 10, marks=pytest.mark.long)]
)
def test_yaml_merges_are_applied(merges: int) -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: [*a, *b], z: 3}"
    assert parse(text, "f.yaml")["c"] == {"x": 1, "y": 1, "z": 3}
    several = "a: &a {x: 1}\nlist:\n" + "- {<<: *a}\n" * merges
    assert parse(several, "f.yaml")["list"][-1] == {"x": 1}
