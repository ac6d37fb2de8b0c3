"""Documents of queues whose fields are of a wrong type: what the specification gives a type is refused in another."""

from collections.abc import Iterator
from typing import Any

import pytest

from mesos_gpu.api import openapi
from tests.contract.rig import Rig


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def typed(name: str) -> dict[str, bool]:
    """The fields of a schema, and whether it says anything of their values."""
    fields: dict[str, Any] = openapi.document()["components"]["schemas"][name]["properties"]
    return {field: bool({*schema} - {"description"}) for field, schema in fields.items()}


def test_a_field_is_refused_in_a_wrong_type_or_may_be_anything(rig: Rig) -> None:
    fields = typed("QueuesRequest")
    assert {field for field, has_type in fields.items() if not has_type} == {
        "at", "by", "reclaim_at", "plan", "warnings", "in_force",
    }  # fmt: skip
    for field, has_type in fields.items():
        response = rig.call("POST", "/v1/plan/queues", json={field: [["no such value"]]})
        assert response.status_code == (422 if has_type else 200), f"{field}: {response.text}"
        assert not has_type or field in response.text
