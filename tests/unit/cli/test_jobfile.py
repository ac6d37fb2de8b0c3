"""Job files that stand for more than they say, or are nested without end."""

import json

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.files.text import MAX_VALUES, BadFile, parse
from mesos_gpu.cli import main, output
from mesos_gpu.cli.jobfile import read_jobs

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 30)
)


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (BOMB, "job.yaml", f"more than {MAX_VALUES} values"),
        ("a: &a [*a]", "job.yaml", f"more than {MAX_VALUES} values"),
        ("[" * 5000 + "]" * 5000, "job.json", "nested too deeply"),
        ("[" * 5000 + "]" * 5000, "job.yaml", "nested too deeply"),
        ("[" * 5000, "job.yaml", "nested too deeply"),
        ("- " * 5000 + "x", "job.yaml", "nested too deeply"),
        ("{a: " * 5000 + "}" * 5000, "stdin", "nested too deeply"),
    ],
    ids=["bomb", "cycle", "json", "json as yaml", "not closed", "block", "flow"],
)
def test_job_file_beyond_limits_is_refused_with_its_reason(text: str, name: str, why: str) -> None:
    with pytest.raises(BadFile, match=why) as refused:
        parse(text, name)
    assert name in refused.value.what
    assert refused.value.exit_code == 65


@pytest.mark.parametrize(
    ("gpus", "said"),
    [(".nan", "got NaN"), ("NaN", 'got "NaN"'), (".inf", "got Infinity"), ("1e-9", "1e-9"), ("-0.5", "got -0.5"),
     ("1.5", "got 1.5: for a part of each of several"), ('"0.5"', ('got "0.5": write it as a '
                                                                  "number, without quotes"))],
)  # fmt: skip
def test_job_file_fraction_that_is_malformed_is_refused_before_sending(gpus: str, said: str) -> None:
    text = f"command: 'true'\ngpus: {gpus}\n"
    done = CliRunner().invoke(main, ["--url", "http://127.0.0.1:1", "submit", "-"], input=text)
    assert (done.exit_code, type(done.exception)) == (65, SystemExit), done.output
    assert said in done.output


def test_job_file_fraction_is_sent_as_written() -> None:
    for text in ("command: 'true'\ngpus: .25\n", '{"command": "true", "gpus": 0.25}'):
        (request,) = read_jobs(text, name="stdin")
        assert request["gpus"] == 0.25


@pytest.mark.parametrize("text", [BOMB, "[" * 5000 + "]" * 5000])
@pytest.mark.parametrize("words", [["submit"], ["app", "create"]])
def test_job_file_refusal_by_any_command_has_no_traceback(text: str, words: list[str]) -> None:
    done = CliRunner().invoke(main, ["--url", "http://127.0.0.1:1", *words, "-"], input=text)
    assert (done.exit_code, type(done.exception)) == (65, SystemExit), done.output
    assert "Traceback" not in done.output


def test_job_file_with_few_aliases_is_taken() -> None:
    document = parse("env: &e {A: b}\njobs: [{env: *e}, {env: *e}]", "job.yaml")
    assert document["jobs"] == [{"env": {"A": "b"}}, {"env": {"A": "b"}}]


@pytest.mark.parametrize(
    "text", ["\x9b31mred", "\u202etxt.exe", "\u2066x\u2069", "\x7f", "\u00ad", "\U000e0041"]
)
def test_json_output_has_no_terminal_codes(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """C1 controls, marks of direction and what else cannot be seen."""
    output.document({"message": text, "plain": "äöü 日本 ✓"})
    out = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in out)
    assert json.loads(out) == {"message": text, "plain": "äöü 日本 ✓"}
    assert "äöü 日本 ✓" in out


@pytest.mark.parametrize("text", ["\x9b31mred", "\u202etxt.exe", "\x1b]0;x\x07"])
def test_table_output_has_no_terminal_codes(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("A", "B"), [(text, "x")], empty="")
    output.pairs([("a", text)])
    output.line(text)
    assert all(char.isprintable() or char == "\n" for char in capsys.readouterr().out)


# --- units, and lines


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"mem": "16GiB"}, {"mem_mib": 16384}),
        ({"mem": 512}, {"mem_mib": 512}),
        ({"disk": "1.5g", "kill_grace": "1m"}, {"disk_mib": 1536, "kill_grace_s": 60.0}),
        ({"timeout": "1h30m", "notice": 90}, {"timeout_s": 5400.0, "notice_s": 90}),
        (
            {"gpu_memory": "20GiB", "gpu_compute": "30%", "gpu_memory_max": "21GiB"},
            {"gpu_memory_mib": 20480, "gpu_compute_pct": 30.0, "gpu_memory_max_mib": 21504},
        ),
        (
            {"health_checks": [{"protocol": "COMMAND", "command": "x", "interval": "10s", "timeout": 5}]},
            {"health_checks": [{"protocol": "COMMAND", "command": "x", "interval_s": 10.0, "timeout_s": 5}]},
        ),
        ({"mem": None, "mem_mib": 5}, {"mem_mib": 5}),
    ],
)
def test_units_are_written_as_options_have_them(written: dict[str, object], read: dict[str, object]) -> None:
    job = {"command": "true", "gpus": 1}
    assert read_jobs(json.dumps(job | written), name="j.json") == [job | read]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mem: 16GB", "line 2, /mem: '16GB' is in decimal units; write 16GiB"),
        ("timeout: soon", "line 2, /timeout: 'soon' is not a time span"),
        ("gpu_compute: some", "line 2, /gpu_compute: 'some' is not a percentage"),
        (
            "mem_mib: 16GiB",
            'line 2, /mem_mib: must be a number, got "16GiB": for a value with a unit use the field mem',
        ),
        ("{mem: 1GiB, mem_mib: 5}", "line 2, /mem: means mem_mib, which is also given: remove one of them"),
        ("mem: 0", "line 2, /mem: must be a positive integer"),
        ("mem: true", "line 2, /mem: must be a positive integer"),
        ("memm: 5GiB", "line 2, /memm: unknown field; did you mean"),
        ("memory: 5GiB", "line 2, /memory: unknown field; did you mean mem_mib?"),
        (
            "health_checks: [{protocol: COMMAND, command: x, delay: x}]",
            "line 2, /health_checks/0/delay: 'x' is not a",
        ),
    ],
)
def test_job_file_amount_that_is_malformed_is_reported_with_its_line(line: str, said: str) -> None:
    with pytest.raises(BadFile) as refused:
        read_jobs(f"command: x\n{line}" if line[0] != "{" else f"{{command: x,\n{line[1:]}", name="j.yaml")
    assert said in refused.value.what


def test_job_file_problems_have_lines_in_both_languages() -> None:
    yaml = "# jobs\n- command: x\n  env:\n    A: b\n    'C/D': 5\n-\n  cpus: -1\n  command: y\n"
    said = "\n".join((
        "j was not submitted:",
        "  line 5, /0/env/C~1D: must be a string without NUL, got 5",
        "  line 7, /1/cpus: must be a positive number, from 0.001 to 100000, got -1",
    ))  # fmt: skip
    in_json = '\n\n[{"command": "x",\n\t"env":\n{"A": "b", "C/D": 5}},\n\n\t{"cpus": -1, "command": "y"}]'
    for text in (yaml, in_json):
        with pytest.raises(BadFile) as refused:
            read_jobs(text, name="j")
        assert refused.value.what == said


def test_job_file_key_given_twice_in_json_has_a_line() -> None:
    with pytest.raises(BadFile, match="'a' twice in one object at line 3, column 2"):
        parse('{\n\t"a": 1,\n\t"a": 2}', "j.json")


def test_job_file_problem_without_a_known_line_is_still_reported() -> None:
    text = '{"command": "x", "cpus": -1, "' + "k" * 2000 + '": 1}'  # YAML has no keys of that length
    with pytest.raises(BadFile, match=r"\n  /cpus: must be"):
        read_jobs(text, name="j.json")
