"""A log for people: what others wrote neither commands a terminal nor looks like an entry of its own."""

import io
import logging

import pytest

from isolator.executor import verdicts
from mesos_gpu.adapters.files.log_lines import Text
from mesos_gpu.scheduler.logs import Text as OfScheduler

HOSTILE = "a\x1b[2Jb\n2026-01-01 00:00:00 INFO mesos_gpu.audit: forged\u202ec\x9b31m\r"


@pytest.mark.parametrize("form", [Text, OfScheduler])
def test_log_messages_and_tracebacks_are_escaped_and_forge_no_line(form: type[logging.Formatter]) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form())
    logger = logging.Logger("mesos_gpu.x")
    logger.addHandler(handler)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("broke on %s", HOSTILE)
    said = stream.getvalue()
    assert said.replace("\n", "").isprintable()
    first, *rest = said.rstrip("\n").split("\n")
    assert "broke on a\\x1b[2Jb\\n2026" in first
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in rest)
    assert any("ValueError: a\\x1b[2Jb" in line for line in rest)


def test_log_of_an_executor_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts.log(HOSTILE)
    said = capsys.readouterr().err
    assert said.replace("\n", "").isprintable()
    assert said.split("\n")[1].startswith("    2026")
