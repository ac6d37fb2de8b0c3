"""Effects in the words and digests of a journal."""

from dataclasses import replace

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine.journal import decisions, digest, words
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.saves import ForgetJob, SaveToken

KILL = fx.Kill(TaskId("j.1"), AgentId("a1"), 5.0)
TOKEN = Token("t", "ann", "salt", "digest", 1.0, 2.0)


def test_digest_of_effects_has_sixteen_digits_and_no_proof_of_a_token() -> None:
    assert [len(digest([each])) for each in (KILL, SaveToken(TOKEN))] == [16, 16]
    other: list[fx.Effect] = [SaveToken(replace(TOKEN, salt="x", digest="y"))]
    assert digest([SaveToken(TOKEN)]) == digest(other) != digest([SaveToken(replace(TOKEN, name="bob"))])
    assert digest([KILL, *other]) != digest([*other, KILL])


def test_decisions_of_a_step_are_its_calls_without_what_follows() -> None:
    effects: list[fx.Effect] = [KILL, ForgetJob(JobId("j")), fx.Publish(JobId("j"), 2)]
    effects.append(fx.Acknowledge(AgentId("a1"), TaskId("j.1"), "u"))
    assert decisions(effects) == ['Kill task_id="j.1" agent_id="a1" grace_s=5.0']
    assert words(ForgetJob(JobId("j"))) == "ForgetJob j"
