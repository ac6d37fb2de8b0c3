"""Commands that end or delete something, on a terminal: a no changes nothing, a yes and --yes go on."""

from typing import Any

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main
from tests.doubles.fake_rest import FakeRest

APP = {"id": "/web", "instances": 4, "tasks": []}
DEPLOYMENT = {
    "id": "d-1", "version": "", "affectedApps": ["/web", "/db"], "steps": [], "waiting": {}, "currentActions": [],
    "currentStep": 1, "totalSteps": 1,
}  # fmt: skip
UPLOAD = {"sha256": "a" * 64, "received_bytes": 1, "complete": True, "jobs": [], "used_at": 0.0}
UNKNOWN: dict[str, Any] = {
    "id": "t.1", "job_id": None, "name": None, "state": "running", "hostname": "n", "agent_id": "S0", "gpu_ids": [],
    "user": None, "app": None, "tasks": 1, "since": 0.0, "launched_at": None, "kill_requested": False,
    "adoptable": False,
}  # fmt: skip
CHANGES = [
    {"id": "/db", "before": {"instances": 1}, "after": None},
    {"id": "/web", "before": {"instances": 4}, "after": {"instances": 1}},
    {"id": "/new", "before": None, "after": {"instances": 2}},
]
ANSWERS: dict[str, Any] = {
    "GET /v2/apps/web": {"app": APP},
    "GET /v2/apps/team/*": {"*": [{"id": "/team/a"}, {"id": "/team/b"}]},
    "PATCH /v2/apps/web": {"steps": [], "changes": CHANGES, "warnings": []},
    "PUT /v2/apps/web": {"steps": [], "changes": CHANGES[1:], "warnings": []},
    "GET /v2/deployments": [DEPLOYMENT],
    "GET /v1/queues/research": {"version": 4},
    "GET /v1/uploads": {"uploads": [UPLOAD], "archive_limit_bytes": 1, "owner_limit_bytes": 1},
    "GET /v1/tasks/unknown": {"tasks": [UNKNOWN]},
}
LOSSES = "Delete /db and its 1 instance; end 3 instances of /web, which then has 1?"
ASKS = {
    "kill a b": "Kill a, b?",
    "tasks unknown kill t.1": "End t.1?",
    "app update /web instances=1": LOSSES,
    "app scale /web 1": LOSSES,
    "app rollback /web --version 2015-02-03T12:30:00.000Z": "End 3 instances of /web, which then has 1?",
    "app delete /web": "Delete 1 app: /web?",
    "app delete -r /team": "Delete 2 apps: /team/a, /team/b?",
    "deployment stop d-1": "Undo deployment d-1 of /web, /db?",
    "deployment stop d-1 --force": "Leave half done deployment d-1 of /web, /db?",
    "service unsplit web": "Remove service web?",
    "node drain n1 n2 --reason x --deadline 30m": "End the jobs on n1, n2 in 30m00s? They restart elsewhere.",
    "gpu drain n1:0 --reason x --deadline 0": "End the jobs on n1:0 now? They restart elsewhere.",
    "queue drain research": "End all jobs in queue research and the queues below it, with notice?",
    "reserve cancel talk": "Cancel talk, and end the jobs that run there, with notice?",
    "token revoke 1a2b3c4d": "Revoke 1a2b3c4d, and the tokens that were created with them?",
    "webhook remove ops": "Remove ops, and their pending events?",
    "uploads rm --unused": "Remove 1 upload?",
}


@pytest.fixture(autouse=True)
def scheduler(rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> FakeRest:
    monkeypatch.setattr("mesos_gpu.cli.output.is_terminal", lambda _stream: True)
    rest.fixed |= {asked: (200, answer) for asked, answer in ANSWERS.items()}
    return rest


def call(words: str, answer: str) -> Result:
    return CliRunner().invoke(main, words.split(), input=answer, prog_name="mesos-gpu")


def changed(rest: FakeRest) -> list[str]:
    """Return the requests that change something, without those that only ask what would change."""
    return [
        asked
        for asked, _ in rest.asked
        if not asked.startswith("GET ") and rest.queries[asked].get("dryRun") != ["true"]
    ]


@pytest.mark.parametrize(("words", "question"), ASKS.items(), ids=ASKS)
def test_command_that_destroys_asks_on_a_terminal(scheduler: FakeRest, words: str, question: str) -> None:
    no = call(words, "n\n")
    assert (no.exit_code, question in no.stderr) == (1, True), no.output
    assert changed(scheduler) == []
    call(words, "y\n")
    assert changed(scheduler), "what comes of the request is no matter here"
    scheduler.asked.clear()
    assert question not in call(f"{words} --yes", "").stderr
    assert changed(scheduler)


@pytest.mark.parametrize(
    "words", ["node drain n1 --reason x", "gpu drain n1:0 --reason x", "queue hold research"]
)
def test_command_that_ends_nothing_does_not_ask(scheduler: FakeRest, words: str) -> None:
    assert "?" not in call(words, "").stderr
    assert changed(scheduler)
