"""Every command of the README and the guide, in their order, on the cluster that they start."""

from pathlib import Path

import pytest

from tests.documents.reader import reading

pytestmark = [pytest.mark.cluster, pytest.mark.on_change("documents"), pytest.mark.timeout(600)]


@pytest.mark.parametrize("document", ["README.md", "docs/guide.md"])
def test_commands_of_a_document_work_in_their_order(document: str, open_directory: Path) -> None:
    with reading(open_directory) as reader:
        assert len(reader.follow(document)) > 8, "they are found"
