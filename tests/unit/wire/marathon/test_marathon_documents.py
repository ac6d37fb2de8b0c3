"""163 documents of Marathon's own: each is judged as Marathon 1.11 judges it, or is in a table here with the reason."""

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mesos_gpu.wire.marathon.app import app_of, app_to_json
from mesos_gpu.wire.marathon.group import group_of, group_to_json
from mesos_gpu.wire.marathon.problems import Problems
from mesos_gpu.wire.marathon.rules import Allowed

DATA = Path(__file__).parents[3] / "data/marathon"
PRINTED = jsonschema.Draft7Validator(json.loads((DATA / "App-1.11.schema.json").read_text()))
DOCUMENTS: list[dict[str, Any]] = [
    json.loads(line) for line in gzip.decompress((DATA / "documents.jsonl.gz").read_bytes()).splitlines()
]
APPS = [each for each in DOCUMENTS if each["kind"] == "app"]
OTHERS = {each["file"]: each for each in DOCUMENTS if each["kind"] != "app"}

VOLUMES = "volumes(0)/persistent"  # those on disks of type mount are refused
# Valid in Marathon, or so it was derived, and refused here: a piece of the path that is named, with the reason above.
REFUSED = {
    "docs/1.11__persistent-volumes.md_L193__6a7abb.json": VOLUMES,
    "docs/1.4__persistent-volumes.md_L147__2d6b4f.json": VOLUMES,
    "docs/1.5__persistent-volumes.md_L147__5d1f1a.json": VOLUMES,
    "files/1.11__tests__system__apps__external-volume-mesos-app__b50193.json": "volumes(0)/external",
    # Marathon's sources refuse it since 1.5 (AppValidation: credential is empty); its RAML still has the field.
    "docs/1.4__native-docker.md_L320__6ffe3b.json": "/container/docker/credential",
}
# Groups and lists have no derived verdict; these are refused.
REFUSED_OTHERS = {
    "docs/1.11__ip-per-task.md_L48__2dd8aa.json": "/groups(0)",  # an ipAddress, no group
    "docs/1.11__networking.md_L302__88d419.json": "/id",  # fragments of apps
    "docs/1.11__resource-limits.md_L26__af74cb.json": "/id",
    "files/1.11__rest-api__public__api__v2__examples__apps_patch__e9fb68.json": "/",  # patches: neither cmd nor args
}


def paths_of(problems: object) -> str:
    assert isinstance(problems, Problems)
    assert problems.status == 422
    return " ".join(detail if isinstance(detail, str) else detail.path for detail in problems.details)


@pytest.mark.parametrize("each", APPS, ids=[each["file"] for each in APPS])
def test_marathon_documents_of_apps_get_their_verdict(each: dict[str, Any]) -> None:
    needs_secrets = any("secrets" in error for error in each["errors"])
    verdict = app_of(each["document"])
    if each["file"] in REFUSED:
        assert each["verdict"] == "valid"
        assert REFUSED[each["file"]] in paths_of(verdict)
        return
    assert isinstance(verdict, Problems) == (each["verdict"] != "valid")
    if needs_secrets:
        assert "secret" in paths_of(verdict)
        verdict = app_of(each["document"], allowed=Allowed(secrets=True))
        assert isinstance(verdict, Problems) == (each["verdict"] == "invalid")
    if not isinstance(verdict, Problems):
        allowed = Allowed(secrets=needs_secrets)
        printed = app_to_json(verdict)
        PRINTED.validate(printed)
        assert app_of(json.loads(json.dumps(printed)), allowed=allowed) == verdict


@pytest.mark.parametrize("file", OTHERS)
def test_marathon_documents_of_groups_and_lists_get_their_verdict(file: str) -> None:
    document, kind = OTHERS[file]["document"], OTHERS[file]["kind"]
    documents = document if isinstance(document, list) else [document]
    read: list[object] = [group_of(each) if kind == "group" else app_of(each) for each in documents]
    for each in read:
        if file in REFUSED_OTHERS:
            assert REFUSED_OTHERS[file] in paths_of(each)
        else:
            assert not isinstance(each, Problems), paths_of(each)


def test_marathon_groups_are_printed_as_they_are_read() -> None:
    groups = [group_of(each["document"]) for each in OTHERS.values() if each["kind"] == "group"]
    read = [each for each in groups if not isinstance(each, Problems)]
    assert len(read) == 14
    for group in read:
        assert group_of(json.loads(json.dumps(group_to_json(group)))) == group  # type: ignore[arg-type]
