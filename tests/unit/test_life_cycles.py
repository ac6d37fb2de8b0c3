"""Life cycles in docs/development.md are those that the code has."""

from pathlib import Path

import pytest

from mesos_gpu.model.apps.rollout import InstanceState
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.tasks.task import TaskState
from scripts.life_cycles import DRAWN, card, deployment, instance, rendered, task

DOCUMENT = Path(__file__).parents[2] / "docs/development.md"


def test_the_document_shows_the_life_cycles_of_the_code() -> None:
    text = DOCUMENT.read_text()
    assert rendered(text) == text, "run: make docs"


@pytest.mark.parametrize("name", DRAWN)
def test_a_life_cycle_that_changes_is_found_in_the_document(name: str) -> None:
    text = DOCUMENT.read_text()
    drawn = DRAWN[name]()
    line = drawn.splitlines()[-1]
    assert rendered(text.replace(drawn, drawn.replace(line, f"{line} other"))) == text


def test_a_document_without_a_place_for_a_life_cycle_is_refused() -> None:
    text = DOCUMENT.read_text().replace("<!-- life cycle: card -->", "")
    with pytest.raises(LookupError, match="the life cycle of card"):
        rendered(text)


def test_life_cycle_diagram_has_each_state() -> None:
    reported = [health.value for health in Health if health is not Health.DRAINED]  # that lies over it
    for drawing, states in (
        (task(), [state.value for state in TaskState]),
        (instance(), [state.value for state in InstanceState]),
        (card(), reported),
    ):
        assert [state for state in states if f"{state} -->" not in drawing] == []


def test_life_cycle_arrows_of_a_card_name_their_cause() -> None:
    lines = card().splitlines()
    assert "    sick --> suspect: no fault for the recheck time" in lines
    assert not any(line.startswith("    sick --> ok") for line in lines)


def test_a_deployment_stops_before_it_starts_and_waits_for_dependencies() -> None:
    lines = [line.strip() for line in deployment().splitlines()]
    assert lines.index("step1: StopApplication /gone") < lines.index("step2: StartApplication /new")
    assert lines.index("step3: RestartApplication /changed; ScaleApplication /scaled") < lines.index(
        "step4: ScaleApplication /new"
    )
