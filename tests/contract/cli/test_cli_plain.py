"""What others wrote commands no terminal: names, messages and answers, whatever the command."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesos_gpu.wire.plain import clean, clean_lines
from tests.contract.cli.cli_rig import GPU, NODE, call
from tests.doubles.fake_rest import FakeRest

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\b\x9b31m\u202egnp.exe\u2066\u200b\ufeff\u2028\u0085\x7f"
COMMANDS = [
    "ps",
    "ps -a",
    "ps --json",
    "show {job}",
    "show {job} --json",
    "nodes",
    "nodes --json",
    "gpus",
    "gpus --wide",
]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)


def filled(rest: FakeRest, word: str) -> str:
    """Have a word of others wherever it may be; the job's id."""
    job = rest.add("job", argv=["sh", "-c", word], env={"A": word})
    rest.jobs[job].update(
        name=word, state="failed", message=word, hostname=word, hostnames=[word], queue=word, user=word, runs_as=word,
        submitted_at=time.time(),
    )  # fmt: skip
    node = {**NODE, "hostname": word, "attributes": {word: word}, "volume_problem": word}
    rest.fixed["GET /v1/nodes"] = (200, {"nodes": [node]})
    rest.fixed["GET /v1/gpus"] = (200, {"gpus": [{**GPU, "hostname": word, "reason": word, "model": word}]})
    return job


def commanding(text: str) -> set[str]:
    """What in a text a terminal may take for more than a sign."""
    return {char for char in text if not char.isprintable()} - {"\n"}


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_print_no_terminal_codes_of_others(words: str) -> None:
    with FakeRest() as rest:
        job = filled(rest, HOSTILE)
        got = call("--url", rest.url, *words.format(job=job).split())
    assert got.exit_code == 0, got.output
    assert commanding(got.output) == set()


@pytest.mark.parametrize(
    "words", ["ps", "nodes", "gpus", "show j1", "kill j1", "queue", "app list", "why j1"]
)
def test_errors_print_no_terminal_codes_of_others(words: str) -> None:
    """A server's words, which may be those of whoever is in between."""
    answer = {"message": HOSTILE, "remedy": HOSTILE, "error": HOSTILE}
    with FakeRest() as rest:
        for path in ("jobs", "jobs/j1", "nodes", "gpus", "queue", "jobs/j1/why", "status"):
            for verb in ("GET", "DELETE"):
                rest.fixed[f"{verb} /v1/{path}"] = (403, answer)
        rest.fixed["GET /v2/apps"] = (403, answer)
        got = call("--url", rest.url, *words.split())
    assert got.exit_code != 0
    assert got.output.startswith("Error: ")
    assert commanding(got.output) == set()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_whatever_the_text_is(word: str) -> None:
    with FakeRest() as rest:
        job = filled(rest, word)
        for words in ("ps -a", f"show {job}", "nodes"):
            got = call("--url", rest.url, *words.split())
            assert got.exit_code == 0, got.output
            assert commanding(got.output) == set()


@given(st.text())
def test_plain_text_is_plain(text: str) -> None:
    assert clean(text).isprintable()
    assert all(line.isprintable() for line in clean_lines(text).split("\n"))
    assert clean_lines(text).count("\n") == text.count("\n")
