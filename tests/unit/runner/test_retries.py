"""History of second tries."""

from pathlib import Path

import msgspec

from tests.runner import retries

FAILED = {"test_a.py::test_one": "out of luck"}


def test_history_allows_one_second_try_of_a_test(tmp_path: Path) -> None:
    history, artefact = tmp_path / "state" / "runs.jsonl", tmp_path / "build" / "retried.jsonl"
    assert retries.record(FAILED, history, artefact) == []
    assert retries.record({}, history, artefact) == []
    assert retries.record({"test_a.py::test_two": "too"}, history, artefact) == []
    assert retries.record(FAILED, history, artefact) == ["test_a.py::test_one"]


def test_history_forgets_runs_beyond_its_size(tmp_path: Path) -> None:
    history, artefact = tmp_path / "runs.jsonl", tmp_path / "retried.jsonl"
    retries.record(FAILED, history, artefact)
    for _ in range(retries.MAX_RUNS - 1):
        assert retries.record({}, history, artefact) == []
    assert len(retries.read(history)) == retries.MAX_RUNS
    assert retries.record(FAILED, history, artefact) == []


def test_history_leaves_out_damaged_lines(tmp_path: Path) -> None:
    history, artefact = tmp_path / "runs.jsonl", tmp_path / "retried.jsonl"
    retries.record(FAILED, history, artefact)
    history.write_bytes(b'{"at": 3}\nnonsense\n' + history.read_bytes())
    assert retries.record(FAILED, history, artefact) == [*FAILED]


def test_artefact_has_the_failure_of_each_retried_test(tmp_path: Path) -> None:
    artefact = tmp_path / "retried.jsonl"
    retries.record(FAILED, tmp_path / "runs.jsonl", artefact)
    (line,) = artefact.read_bytes().splitlines()
    assert msgspec.json.decode(line) == {"test": "test_a.py::test_one", "failure": "out of luck"}
    retries.record({}, tmp_path / "runs.jsonl", artefact)
    assert artefact.read_bytes() == b""
