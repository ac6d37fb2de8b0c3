"""Answers of a scheduler of an earlier release."""

from typing import Annotated, TypedDict

import msgspec
import pytest

from mesos_gpu.cli.reach.answers import decoded


class Inner(TypedDict):
    """A part of an answer; `new` came with this release."""

    old: int
    new: Annotated[str | None, "said"]


class Answer(TypedDict):
    """An answer."""

    all: list[Inner]
    by_name: dict[str, Inner]
    one: Inner | None
    needed: int


def test_answer_field_absent_from_an_earlier_scheduler_is_none() -> None:
    said = b'{"all": [{"old": 1}, {"old": 2, "new": "x"}], "by_name": {"a": {"old": 3}}, "needed": 5}'
    assert decoded(said, Answer) == {
        "all": [{"old": 1, "new": None}, {"old": 2, "new": "x"}],
        "by_name": {"a": {"old": 3, "new": None}},
        "one": None,
        "needed": 5,
    }


@pytest.mark.parametrize(
    "said", [b'{"all": [], "by_name": {}}', b'{"all": 1, "by_name": {}, "needed": 1}', b"{"]
)
def test_answer_of_another_form_is_still_refused(said: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as failure:
        decoded(said, Answer)
    with pytest.raises(msgspec.DecodeError) as plain:
        msgspec.json.decode(said, type=Answer)
    assert str(failure.value) == str(plain.value)
