"""Templates are what Marathon takes; the schema is made from Marathon 1.11's own RAML."""

import json
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "tests/data/marathon/App-1.11.schema.json").read_text())


@pytest.mark.parametrize("path", sorted((ROOT / "marathon_templates").glob("*.json")), ids=lambda p: p.name)
def test_a_template_is_a_marathon_app(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)


def test_the_schemas_own_rules_bite() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": "/x", "cpus": "many"}, SCHEMA)
