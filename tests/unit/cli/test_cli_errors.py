"""Errors of users and servers, and completion: in this process, against a scripted server."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import client as client_module
from mesos_gpu.cli import main
from mesos_gpu.cli.files.copying import Incomplete, fetch
from mesos_gpu.cli.files.place import Place
from mesos_gpu.wire.channel.tree import Mark, Record, Said
from tests.doubles.fake_rest import FakeRest


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRest]:
    with FakeRest() as server:
        monkeypatch.setenv("MESOS_GPU_URL", server.url)
        yield server


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="mesos-gpu")


def test_refused_request_prints_every_problem(rest: FakeRest) -> None:
    problems = [
        {"path": "/cpus", "reason": "must be positive, got -1"},
        {"path": "/user", "reason": "is root"},
    ]
    rest.fixed["POST /v1/jobs"] = (
        422,
        {
            "error": {
                "code": "invalid",
                "message": "the job is not valid",
                "remedy": "mend it",
                "problems": problems,
            }
        },
    )
    got = call("run", "--cpus", "1", "--user", "root", "x")
    assert got.exit_code == 65
    assert got.stderr == (
        "Error: the job is not valid\n  --cpus: must be positive, got -1\n  --user: is root\nTo fix: mend it\n"
    )


def test_refused_options_lead_to_the_help_of_their_command(rest: FakeRest) -> None:
    remedy = "correct the listed fields; /v1/openapi.json describes every field"
    error = {"code": "invalid", "message": "no", "remedy": remedy, "problems": []}
    rest.fixed["POST /v1/jobs"] = (422, {"error": error})
    assert call("run", "x").stderr.endswith("To fix: correct the options; see: mesos-gpu run --help\n")


def test_forward_of_an_unknown_job_says_so_before_it_listens(rest: FakeRest) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        got = call("port-forward", "nojob", str(taken.getsockname()[1]))
    assert got.exit_code == 66
    assert "nojob" in got.stderr


def test_refused_app_with_a_number_of_gpus_in_gpu_is_led_to_gpus(rest: FakeRest, tmp_path: Path) -> None:
    details = [{"path": "/gpu", "errors": ["error.expected.jsobject"]}]
    rest.fixed["POST /v2/apps"] = (422, {"message": "Invalid JSON", "details": details})
    (tmp_path / "app.json").write_text('{"id": "/x", "cmd": "x", "gpu": 1}')
    lines = call("app", "create", str(tmp_path / "app.json")).stderr.splitlines()
    assert lines[0] == "Error: the definition is not valid"
    assert lines[1].endswith("/gpu: must be an object; for whole GPUs write gpus instead, as a number")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["secret", "set"], "No such command 'secret'. Use instead: run --secret"),
        (["booking", "add"], "No such command 'booking'. Use instead: reserve"),
        (["run"], "Missing argument 'CMD...'"),
        (["run", "--mem", "2GB", "x"], "Invalid value for '--mem': '2GB' is in decimal units; write 2GiB"),
        (["run", "--env", "A", "x"], "Invalid value for '--env': 'A' is not KEY=VALUE"),
        (["run", "--timeout", "soon", "x"], "Invalid value for '--timeout': 'soon' is not a time span"),
        (["run", "--cpus", "-1", "x"], "Invalid value for '--cpus'"),
        (["run", "--gpu", "1", "x"], "No such option '--gpu'"),
        (
            ["submit", "--gpus", "1", "--", "x"],
            "No such option '--gpus': put it into the file as a field, or use:",
        ),
        (["submit", "--gqus", "1", "x"], "No such option '--gqus'."),
        (["kil", "x"], "No such command 'kil'. Did you mean 'kill'?"),
        (["ps", "--state", "dead"], "Invalid value for '--state': 'dead' is not one of 'pending'"),
        (["show", "../status"], "is not a job's ID"),
        (["--url", "ftp://x", "ps"], "Invalid value for '--url': 'ftp://x' is not an address"),
    ],
)
def test_wrong_usage_names_the_option_and_the_form(rest: FakeRest, words: list[str], message: str) -> None:
    got = call(*words)
    assert (got.exit_code, message in got.stderr) == (2, True), got.stderr
    assert not rest.asked


@pytest.mark.parametrize("words", [["./train.sh"], ["train.py"], ["python3", "-u", "train.py"]])
def test_run_command_warns_of_a_local_file_and_names_the_option(
    rest: FakeRest, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train.sh", "train.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    got = call("run", "-d", *words)
    note = f"{words[-1]} is a local file, which the job will not have: upload it with "
    assert (got.exit_code, f"{note}--upload, or mount" in got.stderr) == (0, True), got.stderr
    assert "local file" not in call("run", "-d", "--image", "x", *words).stderr
    assert "local file" not in call("run", "-d", "python3", "other.py").stderr


def test_run_command_words_that_are_no_path_are_sent_unchanged(
    rest: FakeRest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    script, many = "sleep 1; " * 40, "/".join(["name"] * 2000)
    for words in (["sh", "-c", script], ["python3", "-c", many], ["x", "a\0b"], ["x", "loop/y"]):
        got = call("run", "-d", *words)
        assert (got.exit_code, got.stderr) == (0, ""), (words, got.stderr)


def test_an_app_whose_name_is_no_path_is_named_in_the_refusal(rest: FakeRest) -> None:
    for target in ("x" * 300, "a/" * 3000, "a\0b"):
        got = call("app", "update", target)
        assert (got.exit_code, "is not a file; to change an app" in got.stderr) == (2, True), got.stderr


@pytest.mark.parametrize(
    "words", [["ps"], ["run", "x"], ["wait", "a"], ["logs", "-f", "a"], ["kill", "a", "b"]]
)
def test_command_without_a_scheduler_prints_one_line_and_a_remedy_at_once(
    rest: FakeRest, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rest.stop()
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("the command waits"))
    got = call(*words)
    assert got.exit_code == 69
    assert got.stderr == (
        f"Error: the scheduler at {rest.url} does not answer (connection refused)\n"
        "To fix: start one with `mesos-gpu up`, or give its address with --url, MESOS_GPU_URL or "
        "`mesos-gpu context use NAME`\n"
    )


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "JSON is malformed"),
        (200, b'{"jobs": [{"id": 1}]}', "Expected `str`, got `int`"),
        (404, b"<html>", "it answers 404 Not Found"),
        (302, b"", "JSON is malformed|truncated"),
    ],
)
def test_answer_of_another_server_is_recognised(rest: FakeRest, status: int, body: bytes, words: str) -> None:
    rest.fixed["GET /v1/jobs"] = (status, body)
    got = call("ps")
    assert got.exit_code == 76
    assert any(word in got.stderr for word in words.split("|")), got.stderr


VERSION = {"version": "1.11.0", "build_time": 1.6e9, "build_user": "root"}
OURS = {"name": "mesos_gpu", "webui_url": "http://gpu.example.com:8080", "active": True}
FOREIGN = {"name": "marathon", "webui_url": "http://marathon.example.com:8080", "active": True}


@pytest.mark.parametrize(
    ("answers", "what", "remedy"),
    [
        (
            {"GET /master/frameworks": (200, {"frameworks": [FOREIGN, OURS]})},
            "is a Mesos master (1.11.0), not a mesos-gpu scheduler",
            "MESOS_GPU_URL: framework mesos_gpu is at http://gpu.example.com:8080\n",
        ),
        (
            {"GET /master/frameworks": (401, b""), "GET /master/health": (200, b"")},
            "is a Mesos master (1.11.0), not a mesos-gpu scheduler",
            "the page of the master links to it under Frameworks",
        ),
        (
            {"GET /master/frameworks": (404, b""), "GET /master/health": (404, b"")},
            "is a Mesos agent (1.11.0), not a mesos-gpu scheduler",
            "mesos-gpu scheduler --master HOST:PORT --state FILE",
        ),
    ],
)
def test_address_of_mesos_is_recognised(
    rest: FakeRest, answers: dict[str, tuple[int, object]], what: str, remedy: str
) -> None:
    rest.fixed |= {"GET /v1/jobs": (404, b""), "GET /version": (200, VERSION), **answers}
    got = call("ps")
    assert got.exit_code == 76
    assert got.stderr.startswith(f"Error: the server at {rest.url} {what}\nTo fix: ")
    assert remedy in got.stderr


def test_url_option_may_stand_on_both_sides(rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESOS_GPU_URL", "http://127.0.0.1:1")
    assert call("--url", rest.url, "ps").exit_code == 0
    assert call("ps", "--url", rest.url.removeprefix("http://")).exit_code == 0


def test_ids_of_jobs_are_completed(rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = rest.add("one"), rest.add("two")
    rest.end(two, "finished", 0)

    def complete(line: str, word: int) -> list[str]:
        env = {"_MESOS_GPU_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(word)}
        return CliRunner().invoke(main, env=env, prog_name="mesos-gpu").stdout.split()

    assert complete("mesos-gpu kill ", 2) == [f"plain,{one}"]
    assert complete("mesos-gpu show t", 2) == [f"plain,{two}"]
    assert complete("mesos-gpu ps --state ru", 3) == ["plain,running"]
    assert "plain,gpus" in complete("mesos-gpu gp", 1)
    assert complete("mesos-gpu submit x", 2) == ["file,x"]
    rest.stop()
    assert complete("mesos-gpu kill ", 2) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_exists_for_each_shell(shell: str) -> None:
    assert f"_MESOS_GPU_COMPLETE={shell}_complete" in call("completion", shell).stdout


def test_the_client_never_sends_a_job_twice(rest: FakeRest) -> None:
    with client_module.Client(rest.url) as client:
        client.patience_s = 5
        rest.fixed["POST /v1/jobs"] = (503, b"")
        with pytest.raises(client_module.Unreachable):
            client.submit({"command": "x"})
    assert len(rest.asked) == 1


@pytest.mark.parametrize(
    ("faults", "what", "remedy"),
    [
        (
            [((), "No such file or directory")],
            "train:nofile: No such file or directory",
            "mesos-gpu ls train:",
        ),
        ([(("runs", "x"), "Permission denied")], "is incomplete; 0 files are complete", "copy again"),
    ],
)
def test_copy_of_a_missing_file_names_it(
    faults: list[tuple[tuple[str, ...], str]], what: str, remedy: str, tmp_path: Path
) -> None:
    class Faulty:
        def records(self) -> Iterator[Record]:
            yield from (Record(Mark.FAULT, Said(*fault)) for fault in faults)

    with pytest.raises(Incomplete) as refused:
        fetch(Faulty(), Place("train", "nofile"), str(tmp_path))
    assert what in refused.value.what
    assert remedy in refused.value.remedy
