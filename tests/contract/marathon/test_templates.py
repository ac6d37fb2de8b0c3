"""Templates as clients meet them: what can be set, what comes of it, and that Marathon's interface takes that."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.files import templates
from mesos_gpu.cli import main
from tests.contract.rig import Rig

SCHEDULER: Final = "mesos-gpu-scheduler"  # reaches the master, which the operator allows by an option


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def render(rig: Rig, name: str, values: Any, want: int = 200) -> Any:
    answer = rig.call("POST", f"/v1/templates/{name}/render", json={"values": values})
    assert answer.status_code == want, answer.text
    return answer.json()


def said(*words: str) -> str:
    done = CliRunner().invoke(main, ["template", *words], prog_name="mesos-gpu")
    assert done.exit_code == 0, done.output
    return done.stdout


def test_templates_are_those_of_the_command(rig: Rig) -> None:
    listed = rig.call("GET", "/v1/templates").json()["templates"]
    assert [each["name"] for each in listed] == templates.names()
    for each in listed:
        shown = json.loads(said("show", each["name"], "--json"))
        del shown["document"]
        assert each == shown


@pytest.mark.parametrize("name", templates.names())
def test_template_rendered_over_rest_equals_the_command_s(rig: Rig, name: str) -> None:
    needed = {each.name: str(each.default) for each in templates.load(name).parameters if each.required}
    values = {**needed, "id": f"/rendered/{name}"}
    rendered = render(rig, name, values)
    pairs = [word for key, value in values.items() for word in ("-s", f"{key}={value}")]
    assert rendered["document"] == json.loads(said("render", name, *pairs, "--json"))
    rig.clock.time += 1.0
    answer = rig.call("POST", rendered["route"], json=rendered["document"])
    if name == SCHEDULER:
        (detail,) = answer.json()["details"]
        assert (answer.status_code, detail["path"]) == (422, "/gpu/control_access")
        return
    assert answer.status_code == 201, answer.text
    assert rig.call("GET", f"{rendered['route']}/rendered/{name}").status_code == 200


def test_template_rendering_starts_nothing(rig: Rig) -> None:
    render(rig, "vllm", {"id": "/only/rendered"})
    assert rig.call("GET", "/v2/apps/only/rendered").status_code == 404


def test_template_refusal_lists_all_problems_by_field(rig: Rig) -> None:
    wrong = {"gpus": "two", "colour": "red", "workers": "-1", "models": "A100,"}
    error = render(rig, "torch-distributed", wrong, 422)["error"]
    problems = {each["path"]: each["reason"] for each in error["problems"]}
    assert set(problems) == {f"/values/{name}" for name in (*wrong, "host")}
    assert problems["/values/gpus"] == "must be an integer, as 2"
    assert problems["/values/host"].startswith("is missing: ")


@pytest.mark.parametrize(
    "body", [{"value": {}}, {"values": []}, {"values": {"gpus": 2}}, {"values": {"a b": ""}}]
)
def test_a_body_that_is_none_is_refused(rig: Rig, body: dict[str, Any]) -> None:
    answer = rig.call("POST", "/v1/templates/vllm/render", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")


@pytest.mark.parametrize("name", ["vlm", "..%2Fsetup", "%00", "jupyter.json"])
def test_template_that_does_not_exist_is_not_found(rig: Rig, name: str) -> None:
    assert render(rig, name, {}, 404)["error"]["code"] == "not-found"


def test_an_installation_without_templates_says_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(templates, "directory", lambda: tmp_path_factory.mktemp("none"))
    answer = rig.call("GET", "/v1/templates")
    assert (answer.status_code, answer.json()["error"]["remedy"]) == (503, "reinstall mesos_gpu")
