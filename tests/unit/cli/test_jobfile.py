"""Job files that stand for more than they say, or are nested without end."""

import json

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.files.text import MOST_VALUES, BadFile, parse
from mesos_gpu.cli import main, output
from mesos_gpu.cli.jobfile import read_jobs

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (BOMB, "job.yaml", f"more than {MOST_VALUES} values"),
        ("a: &a [*a]", "job.yaml", f"more than {MOST_VALUES} values"),
        ("[" * 5000 + "]" * 5000, "job.json", "nested too deeply"),
        ("[" * 5000 + "]" * 5000, "job.yaml", "nested too deeply"),
        ("[" * 5000, "job.yaml", "nested too deeply"),
        ("- " * 5000 + "x", "job.yaml", "nested too deeply"),
        ("{a: " * 5000 + "}" * 5000, "stdin", "nested too deeply"),
    ],
    ids=["bomb", "cycle", "json", "json as yaml", "not closed", "block", "flow"],
)
def test_it_is_refused_with_a_clear_word(text: str, name: str, why: str) -> None:
    with pytest.raises(BadFile, match=why) as refused:
        parse(text, name)
    assert name in refused.value.what
    assert refused.value.exit_code == 65


@pytest.mark.parametrize(
    ("gpus", "said"),
    [(".nan", "got NaN"), ("NaN", 'got "NaN"'), (".inf", "got Infinity"), ("1e-9", "1e-9"), ("-0.5", "got -0.5"),
     ("1.5", "got 1.5: for a part of each of several"), ('"0.5"', 'got "0.5": write a number, without quotes')],
)  # fmt: skip
def test_a_fraction_that_is_none_is_refused_before_it_is_sent(gpus: str, said: str) -> None:
    text = f"command: 'true'\ngpus: {gpus}\n"
    done = CliRunner().invoke(main, ["--url", "http://127.0.0.1:1", "submit", "-"], input=text)
    assert (done.exit_code, type(done.exception)) == (65, SystemExit), done.output
    assert said in done.output


def test_a_fraction_of_yaml_and_of_json_is_sent_as_it_is() -> None:
    for text in ("command: 'true'\ngpus: .25\n", '{"command": "true", "gpus": 0.25}'):
        (request,) = read_jobs(text, name="stdin")
        assert request["gpus"] == 0.25


@pytest.mark.parametrize("text", [BOMB, "[" * 5000 + "]" * 5000])
@pytest.mark.parametrize("words", [["submit"], ["app", "create"]])
def test_no_command_ends_with_a_traceback(text: str, words: list[str]) -> None:
    done = CliRunner().invoke(main, ["--url", "http://127.0.0.1:1", *words, "-"], input=text)
    assert (done.exit_code, type(done.exception)) == (65, SystemExit), done.output
    assert "Traceback" not in done.output


def test_aliases_that_are_few_are_taken() -> None:
    document = parse("env: &e {A: b}\njobs: [{env: *e}, {env: *e}]", "job.yaml")
    assert document["jobs"] == [{"env": {"A": "b"}}, {"env": {"A": "b"}}]


@pytest.mark.parametrize(
    "text", ["\x9b31mred", "\u202etxt.exe", "\u2066x\u2069", "\x7f", "\u00ad", "\U000e0041"]
)
def test_json_commands_no_terminal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """C1 controls, marks of direction and what else cannot be seen."""
    output.document({"message": text, "plain": "äöü 日本 ✓"})
    out = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in out)
    assert json.loads(out) == {"message": text, "plain": "äöü 日本 ✓"}
    assert "äöü 日本 ✓" in out


@pytest.mark.parametrize("text", ["\x9b31mred", "\u202etxt.exe", "\x1b]0;x\x07"])
def test_nor_does_a_table(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("A", "B"), [(text, "x")], empty="")
    output.pairs([("a", text)])
    output.line(text)
    assert all(char.isprintable() or char == "\n" for char in capsys.readouterr().out)
