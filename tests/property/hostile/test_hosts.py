"""What hosts read of others: a value, or the one kind of error that the reader documents."""

import contextlib
import json
from pathlib import Path
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from isolator.devices import facts
from isolator.gpus.cards import Cards
from isolator.images import registry, source
from isolator.node.monitor import interval_from
from isolator.runs import gang
from mesos_gpu.adapters.proc import boot_id
from mesos_gpu.adapters.secrets import envelope
from mesos_gpu.errors import Damaged, MesosGpuError
from mesos_gpu.policy.gpus.health import HealthSettings
from mesos_gpu.wire import journal
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.mesos import assignment, checks, resize, seal
from tests.property.hostile.test_mesos import REPORT, as_bytes
from tests.property.hostile.words import BYTES, hostile

QUICK: Final = settings(max_examples=150)
CONFIG: Final = {
    "config": {
        "Labels": {"com.nvidia.cuda.version": "12.4"},
        "Env": ["PATH=/bin"],
        "Entrypoint": ["sh"],
        "Cmd": ["-c", "true"],
        "User": "1000",
    }
}
ASSIGNMENT: Final = {"version": 1, "kind": "Assignment", "command": "true", "gpus": ["GPU-0"], "mounts": []}


def documents(*shapes: Any) -> st.SearchStrategy[bytes]:
    return hostile(*shapes).map(as_bytes) | BYTES


@QUICK
@given(documents(ASSIGNMENT, {"resize": {"number": 1}}, {"start": True}, {"report_interval_s": 1}))
def test_messages_of_the_scheduler_are_read_or_refused(data: bytes) -> None:
    for read in (assignment.decode_assignment, resize.decode_request, lambda data: interval_from(data, {})):
        try:
            read(data)
        except ValueError:
            continue
    assert gang.may_start(data) in (True, False)
    assert isinstance(seal.secret_in(data), str)
    sealed = seal.opened(data)
    assert sealed is None or 0 <= sealed[1] < 1 << 53


@QUICK
@given(documents([{"protocol": "HTTP"}]).map(lambda data: data.decode(errors="replace")))
def test_health_checks_are_read_or_refused(text: str) -> None:
    try:
        assert isinstance(checks.decode(text), tuple)
    except ValueError:
        return


@QUICK
@given(documents(CONFIG))
def test_configurations_of_images_are_text_or_refused(data: bytes) -> None:
    try:
        config = source.config_of(registry._object(data, "the image"), "image")
    except MesosGpuError:
        return
    for text in (*config.labels.values(), *config.env.values(), *config.entrypoint, *config.cmd, config.user):
        text.encode()


@QUICK
@given(st.text(max_size=60) | BYTES.map(lambda data: data.decode(errors="replace")))
def test_sealed_secrets_are_opened_or_refused(message: str) -> None:
    try:
        envelope.unseal(message, [envelope.new_key()], b"")
    except envelope.Unopened:
        return
    raise AssertionError("nobody sealed it")


@QUICK
@given(data=documents({"boot_id": boot_id(), "report": REPORT}, {"cards": [REPORT["gpus"][0]]}))
def test_files_of_the_monitor_are_read_or_refused(data: bytes, tmp_path_factory: Any) -> None:
    directory = Path(tmp_path_factory.getbasetemp()) / "monitor"
    directory.mkdir(exist_ok=True)
    (directory / "inventory.json").write_bytes(data)
    (directory / "health.json").write_bytes(data)
    with contextlib.suppress(MesosGpuError):
        facts.read_inventory(directory)
    Cards(directory / "health.json", HealthSettings())


@QUICK
@given(documents({"seq": 1, "at": 1.0, "steps": []}, {"journal": 1, "program": "1", "seq": 1}))
def test_lines_of_a_journal_are_read_or_damaged(line: bytes) -> None:
    for read in (journal.decode_batch, journal.decode_head):
        try:
            read(line)
        except Damaged:
            continue


@QUICK
@given(documents(CONFIG, REPORT))
def test_documents_that_were_read_can_be_written_again(data: bytes) -> None:
    try:
        value = parsed(data)
    except ValueError:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
