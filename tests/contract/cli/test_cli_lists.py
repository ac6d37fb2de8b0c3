"""Lists of all kinds: formats, columns, order, filters, watching; and the end of jobs that are alike."""

import json
import signal
from collections.abc import Iterator

import pytest
import yaml
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from tests.contract.cli.cli_rig import GPU, NODE, call, finish, on_a_terminal, read_until, started
from tests.doubles.fake_rest import FakeRest


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRest]:
    with FakeRest() as server:
        monkeypatch.setenv("MESOS_GPU_URL", server.url)
        yield server


@pytest.fixture
def jobs(rest: FakeRest) -> dict[str, str]:
    """Ids of jobs by name."""
    made = {
        "sweep-1": rest.add("sweep-1", gpus=2, queue="research/vision", labels={"team": "a"}),
        "sweep-2": rest.add("sweep-2", gpus=10, queue="research", labels={"team": "b"}),
        "serve": rest.add("serve", gpus=1, app="/shop/web", queue="default"),
        "old": rest.add("old"),
    }
    rest.jobs[made["sweep-1"]].update(owner="ann", state="running", hostnames=["gpu-1.example.com"])
    rest.jobs[made["sweep-2"]].update(owner="bob?")
    rest.end(made["old"], "finished", 0)
    return made


def names(words: str) -> set[str]:
    got = call(*words.split(), "-q")
    assert got.exit_code == 0, got.output
    return {line.rpartition("-")[0] for line in got.stdout.splitlines()}


@pytest.mark.parametrize(
    ("words", "passing"),
    [
        ("ps", {"sweep-1", "sweep-2", "serve"}),
        ("ps -a", {"sweep-1", "sweep-2", "serve", "old"}),
        ("ps --name sweep", set()),
        ("ps --name sweep-*", {"sweep-1", "sweep-2"}),
        ("ps --name sweep-1 --name serve", {"sweep-1", "serve"}),
        ("ps --user ann", {"sweep-1"}),
        ("ps --user bob", {"sweep-2"}),
        ("ps --queue research", {"sweep-1", "sweep-2"}),
        ("ps --queue research/*", {"sweep-1", "sweep-2"}),
        ("ps --queue research/vision", {"sweep-1"}),
        ("ps --label team", {"sweep-1", "sweep-2"}),
        ("ps --label team=a", {"sweep-1"}),
        ("ps --label team --label team=b", {"sweep-2"}),
        ("ps --app shop/web", {"serve"}),
        ("ps --node gpu-1", {"sweep-1"}),
        ("ps --node gpu-2", set()),
        ("ps --state finished", {"old"}),
        ("ps --state running --user bob", set()),
    ],
)
@pytest.mark.usefixtures("jobs")
def test_jobs_are_filtered(words: str, passing: set[str]) -> None:
    assert names(words) == passing


def test_the_scheduler_is_asked_for_what_is_wanted_alone(rest: FakeRest, jobs: dict[str, str]) -> None:
    names("ps --name a* --user ann --queue q --label k=v --app /x --node n")
    asked = rest.queries["GET /v1/jobs"]
    wanted = {
        "named": ["a*"],
        "user": ["ann"],
        "queue": ["q"],
        "label": ["k=v"],
        "app": ["/x"],
        "node": ["n"],
    }
    assert {key: asked[key] for key in wanted} == wanted


@pytest.mark.usefixtures("jobs")
def test_rows_are_sorted_by_number_and_what_lacks_a_value_comes_last() -> None:
    def order(by: str) -> list[str]:
        return [line.rpartition("-")[0] for line in call("ps", "-a", "-q", "--sort", by).stdout.splitlines()]

    assert order("gpus") == ["old", "serve", "sweep-1", "sweep-2"]
    assert order("-gpus") == ["sweep-2", "sweep-1", "serve", "old"]
    assert order("exit,id")[0] == order("-exit,id")[0] == "old"
    assert order("QUEUE, -ID")[:2] == ["serve", "old"]


@pytest.mark.usefixtures("jobs")
def test_columns_are_those_that_are_named_in_their_order() -> None:
    lines = call("ps", "--columns", "user,Name", "--sort", "name").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["USER", "NAME"], ["-", "serve"], ["ann", "sweep-1"], ["bob?", "sweep-2"]
    ]  # fmt: skip


@pytest.mark.usefixtures("jobs")
def test_list_formats_have_the_same_records() -> None:
    as_json = json.loads(call("ps", "--json").stdout)
    assert json.loads(call("ps", "-o", "json").stdout) == as_json
    assert yaml.safe_load(call("ps", "-o", "yaml").stdout) == as_json
    assert call("ps", "-o", "name").stdout.split() == [job["id"] for job in as_json]
    assert {"NAME", "USER", "LABELS", "COMMAND"} <= set(
        call("ps", "-o", "wide").stdout.split("\n")[0].split()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ps", "--columns", "stat"], "'stat' is not a column; did you mean state?"),
        (["nodes", "--sort", "-zzz"], "'zzz' is not a column; the columns are host, "),
        (["ps", "--columns", ","], "',' contains no column name"),
        (["ps", "--columns", "id", "-q"], "--columns is for tables, not for name"),
        (["ps", "-w", "-o", "yaml"], "use -o json"),
        (["ps", "-q", "--json"], "json and name exclude each other"),
        (["gpus", "--state", "broken"], "'broken' is not one of 'ok'"),
    ],
)
def test_wrong_usage_says_what_there_is(rest: FakeRest, words: list[str], message: str) -> None:
    got = call(*words)
    assert (got.exit_code, message in got.stderr) == (2, True), got.stderr
    assert not rest.asked


def test_yaml_commands_no_terminal(rest: FakeRest) -> None:
    hostile = "\x1b]0;owned\x07\u202e\x9b"
    rest.jobs[rest.add("j")].update(message=hostile)
    text = call("ps", "-o", "yaml").stdout
    assert all(char.isprintable() or char == "\n" for char in text)
    assert yaml.safe_load(text)[0]["message"] == hostile


def test_nodes_and_gpus_are_filtered_too(rest: FakeRest) -> None:
    drain = {
        "target": "node", "name": "b.x", "reason": "fan", "by": "ann", "since": 0.0, "deadline_at": None
    }  # fmt: skip
    rest.fixed["GET /v1/nodes"] = (
        200,
        {"nodes": [{**NODE, "hostname": "a.x"}, {**NODE, "hostname": "b.x", "drain": drain}]},
    )
    rest.fixed["GET /v1/gpus"] = (
        200,
        {"gpus": [{**GPU, "hostname": "a.x"}, {**GPU, "uuid": "GPU-2", "hostname": "b.x", "health": "ok"}]},
    )
    assert call("nodes", "-q", "--state", "drained").stdout == "b.x\n"
    assert call("node", "list", "-q", "--label", "a=1", "--node", "a").stdout == "a.x\n"
    for words in (["gpus"], ["gpu", "list"]):
        assert call(*words, "-q", "--state", "ok").stdout == "GPU-2\n"
        assert call(*words, "-q", "--node", "a").stdout == "GPU-1\n"


# --- watching


def test_list_watched_by_a_program_prints_changes_by_line(rest: FakeRest, jobs: dict[str, str]) -> None:
    words = ["--url", rest.url, "ps", "--watch", "--columns", "id,state,age"]
    with started(*words) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        read_until(process.stdout.fileno(), jobs["serve"].encode())
        rest.update(jobs["sweep-2"], state="running")
        seen = read_until(process.stdout.fileno(), b"running")
        assert jobs["serve"].encode() not in seen, "its age alone is nothing new"
        rest.end(jobs["sweep-1"], "finished", 0)
        read_until(process.stderr.fileno(), b"is no longer in the list")
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
    assert code == 130
    assert "Traceback" not in err


def test_json_is_watched_as_one_document_a_line(rest: FakeRest, jobs: dict[str, str]) -> None:
    with started("--url", rest.url, "ps", "-w", "-o", "json", "--name", "sweep-2") as process:
        assert process.stdout is not None
        first = read_until(process.stdout.fileno(), b"\n")
        rest.update(jobs["sweep-2"], message="new")
        second = read_until(process.stdout.fileno(), b"\n")
        process.send_signal(signal.SIGTERM)
        code, _, _ = finish(process)
    assert [json.loads(line)["message"] for line in (first, second)] == ["", "new"]
    assert code == 143


def test_a_person_sees_the_list_drawn_anew_and_what_is_old_marked(rest: FakeRest) -> None:
    first = rest.add("first", gpus=1)
    with on_a_terminal("ps", "-w") as (process, screen):
        seen = read_until(screen, first.encode())
        assert b"\x1b[?1049h" in seen, "the screen of before is kept"
        assert b"press Ctrl-C to end" in seen
        read_until(screen, rest.add("second").encode())
        rest.stop()
        read_until(screen, b"does not answer")
        rest.start()
        third = rest.add("third")
        read_until(screen, third.encode())
        process.send_signal(signal.SIGINT)
        read_until(screen, b"\x1b[?1049l")
        assert process.wait(60) == 130


def test_a_list_that_is_too_long_for_the_screen_says_so(rest: FakeRest) -> None:
    for _ in range(20):
        rest.add("many")
    with on_a_terminal("ps", "-w", lines=10) as (process, screen):
        read_until(screen, b"and 13 more")
        process.send_signal(signal.SIGTERM)
        read_until(screen, b"\x1b[?1049l")
        assert process.wait(60) == 143


# --- killing


def asked_to_kill(rest: FakeRest) -> set[str]:
    return {what.rpartition("/")[2] for what, _ in rest.asked if what.startswith("DELETE")}


@pytest.mark.parametrize(
    ("words", "ended"),
    [
        ("--all", {"sweep-1", "sweep-2"}),
        ("--name sweep-*", {"sweep-1", "sweep-2"}),
        ("--queue research/vision", {"sweep-1"}),
        ("--label team=b", {"sweep-2"}),
        ("--user ann --state running", {"sweep-1"}),
        ("--app /shop/web", {"serve"}),
        ("--name old", set()),
        ("--state finished", set()),
    ],
)
def test_jobs_that_are_alike_are_killed(
    rest: FakeRest, jobs: dict[str, str], words: str, ended: set[str]
) -> None:
    got = call("kill", *words.split(), "--yes")
    assert got.exit_code == 0, got.output
    assert asked_to_kill(rest) == {jobs[name] for name in ended}
    assert len(got.stdout.splitlines()) == len(ended)


def _on_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str, *words: str) -> Result:
    monkeypatch.setattr("mesos_gpu.cli.output.is_terminal", lambda _stream: True)
    return CliRunner().invoke(main, words, input=answer, prog_name="mesos-gpu")


def test_a_person_is_shown_what_ends_and_asked(
    rest: FakeRest, jobs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    no = _on_a_terminal(monkeypatch, "n\n", "kill", "--name", "sweep-*")
    assert (no.exit_code, asked_to_kill(rest)) == (1, set())
    assert all(jobs[name] in no.stderr for name in ("sweep-1", "sweep-2"))
    assert "Kill 2 jobs?" in no.stderr
    yes = _on_a_terminal(monkeypatch, "y\n", "kill", "--name", "sweep-*")
    assert (yes.exit_code, asked_to_kill(rest)) == (0, {jobs["sweep-1"], jobs["sweep-2"]})


def test_kill_all_without_a_terminal_needs_yes(rest: FakeRest, jobs: dict[str, str]) -> None:
    got = call("kill", "--all")
    assert (got.exit_code, asked_to_kill(rest)) == (2, set())
    assert (
        "Kill 2 jobs? stdin is not a terminal, so the command cannot ask for confirmation: add --yes"
        in got.stderr
    )


@pytest.mark.parametrize("words", [[], ["x", "--all"], ["x", "--name", "y"]])
def test_kill_takes_ids_or_filters(rest: FakeRest, words: list[str]) -> None:
    got = call("kill", *words)
    assert got.exit_code == 2
    assert not rest.asked
