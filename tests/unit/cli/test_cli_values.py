"""Values on the command line, job files, and where the scheduler is."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.adapters.files.text import BadFile
from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.cli import locate, main, output
from mesos_gpu.cli.jobfile import read_jobs
from mesos_gpu.cli.marathon import answer_s
from mesos_gpu.cli.reference import root_context
from mesos_gpu.cli.share import gpus_by_host
from mesos_gpu.cli.types import DURATION, ENV, JOB, LABEL, MEMORY, URL
from mesos_gpu.errors import BadConfiguration, Damaged, Unavailable
from mesos_gpu.scheduler.__main__ import scheduler
from mesos_gpu.scheduler.options.parse import NumberRange


@pytest.mark.parametrize(
    ("text", "mib"),
    [("512", 512), ("2GiB", 2048), ("2g", 2048), ("1.5 GiB", 1536), ("1T", 1 << 20), ("4Gi", 4096)],
)
def test_memory_is_read_in_mib(text: str, mib: int) -> None:
    assert MEMORY.convert(text, None, None) == mib


@pytest.mark.parametrize("text", ["", "2GB", "-1", "0", "1.5", "GiB", "1e3", "2 gib x"])
def test_bad_memory_shows_the_form(text: str) -> None:
    with pytest.raises(
        click.BadParameter,
        match=r"write MiB, such as 512, or a unit, such as 2GiB|whole, positive|decimal units; write 2GiB",
    ):
        MEMORY.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("2h", 7200), ("1h30m", 5400), ("0.5s", 0.5), ("1d", 86400)],
)
def test_durations_are_read_in_seconds(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", "0s", "10x", "1h30", "m"])
def test_bad_duration_shows_the_form(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"such as 90s, 2h, 1h30m|longer than 0"):
        DURATION.convert(text, None, None)


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert ENV.convert("A=b=c", None, None) == ("A", "b=c")
    assert LABEL.convert("team/x=", None, None) == ("team/x", "")
    for text in ("A", "=x", "1A=x", "A B=x"):
        with pytest.raises(click.BadParameter, match="KEY=VALUE, for example LANG=C"):
            ENV.convert(text, None, None)


@pytest.mark.parametrize("text", ["../status", "a/b", "-x", "a b", "", "?"])
def test_job_id_option_refuses_text_that_is_no_id(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a job's ID"):
        JOB.convert(text, None, None)


def test_urls_are_made_whole_or_refused() -> None:
    assert URL.convert("localhost:80/", None, None) == "http://localhost:80"
    assert URL.convert("https://[::1]:9/x", None, None) == "https://[::1]:9/x"
    for text in ("", "http://", "ftp://x", "h:port", "h:99999", "http://a b", "h?x=1"):
        with pytest.raises(click.BadParameter, match=r"for example http://127\.0\.0\.1:8080"):
            URL.convert(text, None, None)


def _up(home: Path, pid: int, ticks: int | None) -> None:
    value = {"url": "http://127.0.0.1:8081", "pid": pid, "started_at": time.time(), "start_ticks": ticks}
    (home / "up.json").write_text(json.dumps(value))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    monkeypatch.delenv("MESOS_GPU_URL", raising=False)
    return tmp_path


def test_scheduler_url_of_a_running_up_is_found(home: Path) -> None:
    _up(home, os.getpid(), start_ticks(os.getpid()))
    assert locate.find_url() == "http://127.0.0.1:8081"


def test_up_file_of_an_ended_process_is_ignored(home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    for pid, ticks in ((gone.pid, 1), (os.getpid(), 1)):  # it has ended; its id is another's by now
        _up(home, pid, ticks)
        assert locate.running() is None
        with pytest.raises(Unavailable, match="mesos-gpu up"):
            locate.find_url()


def test_damaged_up_file_is_an_error_with_a_remedy(home: Path) -> None:
    for text in ("", "[]", "{}", '{"url": "x y", "pid": 1, "started_at": 1, "start_ticks": 1}'):
        (home / "up.json").write_text(text)
        with pytest.raises(Damaged, match="To fix: remove this file"):
            locate.find_url()


def test_scheduler_url_that_is_named_comes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _up(home, os.getpid(), start_ticks(os.getpid()))
    monkeypatch.setenv("MESOS_GPU_URL", "other:1")
    assert locate.find_url() == "http://other:1"
    assert locate.find_url("http://third") == "http://third"
    monkeypatch.setenv("MESOS_GPU_URL", "http://")
    with pytest.raises(BadConfiguration, match="MESOS_GPU_URL"):
        locate.find_url()


def test_job_files_in_both_languages() -> None:
    want = [{"command": "true", "gpus": 1, "gpu_model": ["A100"]}]
    assert read_jobs(json.dumps(want), name="x.json") == want
    assert read_jobs("- command: 'true'\n  gpus: 1\n  gpu_model: [A100]\n", name="-") == want
    assert read_jobs("command: 'true'", name="x.yaml") == [{"command": "true"}]


def test_job_file_problems_are_reported_at_once() -> None:
    jobs = [{"command": "x", "cpus": -1, "gpu": 1}, {"env": {"A": 1}, "mem_mib": True}, 5]
    with pytest.raises(BadFile) as caught:
        read_jobs(json.dumps(jobs), name="f.json")
    lines = caught.value.what.splitlines()
    assert lines[0] == "f.json was not submitted:"
    assert [line.split(":")[0] for line in lines[1:]] == [
        f"  line 1, {place}" for place in ("/0/gpu", "/0/cpus", "/1", "/1/mem_mib", "/1/env/A", "/2")
    ]  # fmt: skip
    assert "must be a positive number" in lines[2]
    assert lines[2].endswith("got -1")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.json", "{", "x.json is not JSON: .* line 1 column 2"),
        ("x.yaml", "a: [", "neither JSON nor YAML at line 1, column 5"),
        ("-", "", "must be an object, got null"),
        ("-", "[]", "contains no job"),
        ("-", "\x00", "neither JSON nor YAML"),
    ],
)
def test_job_file_of_another_form_is_refused(name: str, text: str, words: str) -> None:
    with pytest.raises(BadFile, match=words):
        read_jobs(text, name=name)


_FIELDS = st.sampled_from(["command", "argv", "cpus", "env", "name", "gpu_model", "?"])
_PLAIN = st.none() | st.booleans() | st.floats() | st.text()


_DOCUMENTS = st.recursive(_PLAIN, lambda inner: st.lists(inner) | st.dictionaries(_FIELDS, inner))


@given(_DOCUMENTS)
@settings(max_examples=5)
def test_job_file_of_any_content_is_read_or_refused(value: object) -> None:
    assert_read_or_refused(value)


@pytest.mark.long
@given(_DOCUMENTS)
def test_job_files_of_many_contents_are_read_or_refused(value: object) -> None:
    assert_read_or_refused(value)


def assert_read_or_refused(value: object) -> None:
    """Assert that a document is read as jobs, or refused as a bad file."""
    try:
        jobs = read_jobs(json.dumps(value), name="x.json")
    except BadFile:
        return  # never another exception
    assert all(("command" in job) or ("argv" in job) for job in jobs)


def test_output_of_spans_and_hostile_text_is_safe() -> None:
    assert [output.span(s) for s in (-5, 0, 59.9, 192, 7500, 273600)] == [
        "0s",
        "0s",
        "59s",
        "3m12s",
        "2h05m",
        "3d04h",
    ]
    assert output.clean("a\x1b[31m\n\tü") == r"a\x1b[31m\n\tü"


@pytest.mark.parametrize(
    ("text", "name", "where"),
    [
        (
            '{"command": "a", "gpus": 1, "gpus": 2}',
            "x.json",
            "x.json has 'gpus' twice in one object at line 1, column 29",
        ),
        ('[{"command": "a", "env": {"A": "1", "A": "2"}}]', "stdin", "stdin has 'A' twice"),
        ("command: a\ngpus: 1\ngpus: 2\n", "x.yaml", "'gpus' twice in one object at line 3, column 1"),
        (
            "- command: a\n  env: {A: x, B: y, A: z}\n",
            "x.yaml",
            "'A' twice in one object at line 2, column 21",
        ),
    ],
)
def test_job_file_key_given_twice_is_refused(text: str, name: str, where: str) -> None:
    with pytest.raises(BadFile, match=re.escape(where)):
        read_jobs(text, name=name)


def test_job_file_overrides_merged_yaml_fields() -> None:
    text = "- &a {command: a, gpus: 1}\n- &b {<<: *a, gpus: 2}\n- {<<: *b, gpus: 3}\n"
    assert [job["gpus"] for job in read_jobs(text, name="x.yaml")] == [1, 2, 3]


def test_job_file_field_that_is_mistyped_names_the_nearest() -> None:
    with pytest.raises(BadFile) as refusal:
        read_jobs(
            json.dumps({"command": "a", "gpu": 1, "memory_mib": 5, "colour": 1, "zzz": 2}), name="x.json"
        )
    lines = refusal.value.what.splitlines()[1:]
    assert lines[:2] == [
        "  line 1, /gpu: unknown field; did you mean gpus?",
        "  line 1, /memory_mib: unknown field; did you mean gpu_memory_mib or mem_mib?",
    ]
    assert lines[2].startswith("  line 1, /colour: unknown field; known fields are name, command, argv")
    assert lines[3] == "  line 1, /zzz: unknown field"


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "Infinity", "1e999"])
def test_number_option_refuses_nan_and_infinity(text: str) -> None:
    with pytest.raises(click.BadParameter):
        NumberRange(0).convert(text, None, None)
    with pytest.raises(click.BadParameter):
        NumberRange().convert(text, None, None)
    assert NumberRange(0).convert("1.5", None, None) == 1.5


@pytest.fixture(scope="module")
def every_option() -> list[click.Parameter]:
    """Return the options of all commands, whose imports take longer than the test."""

    def options(command: click.Command, ctx: click.Context) -> Iterator[click.Parameter]:
        yield from command.params
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                each = command.get_command(ctx, name)
                assert each is not None
                yield from options(each, ctx)

    return [*options(main, root_context()), *scheduler.params]


def test_number_options_refuse_nan_and_infinity_everywhere(every_option: list[click.Parameter]) -> None:
    """The types `float` and `click.FloatRange` take nan."""
    assert len(every_option) > 300
    loose = [each.name for each in every_option if type(each.type) in (click.FloatRange, type(click.FLOAT))]
    assert loose == []


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (1234.56, "1234.6"),
        (9.876, "9.88"),
        (0.0724, "0.072"),
        (0.002, "0.002"),
        (0.00001, "0.0"),
        (-0.00001, "0.0"),
    ],
)
def test_duration_of_a_few_hours_is_kept(amount: float, shown: str) -> None:
    assert str(output.hours(amount)) == shown


def test_output_on_a_terminal_is_wrapped_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    long = "waits for 8 GPUs on one-node-with-hyphens, which has four of them"
    output.line(long)
    output.pairs([("why", long)])
    assert capsys.readouterr().out == f"{long}\nwhy  {long}\n", "a pipe gets lines whole"
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    output.line(f"  {long}")
    output.note(long)
    output.error(ValueError(f"{long}\nTo fix: wait"))
    shown = capsys.readouterr()
    assert shown.out == ("  waits for 8 GPUs on\n  one-node-with-hyphens, which has four\n  of them\n")
    assert shown.err == (
        "mesos-gpu: waits for 8 GPUs on\n  one-node-with-hyphens, which\n  has four of them\n"
        "Error: waits for 8 GPUs on\n  one-node-with-hyphens, which has\n  four of them\nTo fix: wait\n"
    )
    output.pairs([("why", long)])
    shown_pairs = click.unstyle(capsys.readouterr().out)
    assert (
        shown_pairs == "why  waits for 8 GPUs on\n     one-node-with-hyphens, which has\n     four of them\n"
    )


def test_output_has_times_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Vienna")
    time.tzset()
    try:
        at = 1_800_000_000.7
        assert (output.stamp(at), output.stamp(None)) == ("2027-01-15T08:00:00Z", None)
        assert output.short_stamp(at) == "01-15T08:00:00Z"
        assert [output.clock(at, at - ahead) for ahead in (60, 2 * 86_400, -60)] == [
            "08:00Z", "2027-01-15T08:00Z", "2027-01-15T08:00Z"
        ]  # fmt: skip
    finally:
        monkeypatch.undo()
        time.tzset()


def test_gpus_of_a_host_are_named_together() -> None:
    assert gpus_by_host(["a.b:0", "a.b:1", "c:3", "GPU-1f"]) == ["a.b:0,1", "c:3", "GPU-1f"]


APP = {"id": "a"}


@pytest.mark.parametrize(
    ("document", "seconds"),
    [
        (None, 0.0),
        (APP, 0.0),
        ([APP] * 9_000, 90.0),
        (
            {"id": "/", "apps": [APP] * 100, "groups": [{"apps": [APP] * 300, "groups": []}, {"id": "/b"}]},
            4.0,
        ),
    ],
)
def test_time_for_an_answer_grows_with_the_apps_of_a_document(document: object, seconds: float) -> None:
    assert answer_s(document) == pytest.approx(seconds)
