"""The site of the pages: built without a warning, complete, and without resources of other hosts."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.drawings import NotDrawn, dot, pictures

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.on_change("documents"),
    pytest.mark.skipif(shutil.which("dot") is None, reason="no dot: apt-get install graphviz"),
]
LOADED = re.compile(
    r"<(?:script|img|iframe|object|source)\b[^>]*\b(?:src|data)=\"([^\"]+)\"|<link\b[^>]*\bhref=\"([^\"]+)\""
)


def make(source: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Make a site as `make docs-site` does."""
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--doctree-dir", f"{into}.trees"]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(into)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("site") / "html"
    done = make(ROOT / "docs", into)
    assert done.returncode == 0, done.stderr
    return into


def test_site_has_a_page_for_each_document(site: Path) -> None:
    documents = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    pages = {path.relative_to(site).with_suffix("") for path in site.glob("**/*.html")}
    assert documents <= pages


def test_site_pages_load_no_resource_of_other_hosts(site: Path) -> None:
    """Browsers of hosts without internet show it, and no other host learns who reads it."""
    pages = sorted(site.glob("**/*.html"))
    loaded = {"".join(each) for page in pages for each in LOADED.findall(page.read_text())}
    assert len(loaded) > 10
    assert [each for each in loaded if re.match(r"(https?:)?//", each)] == []


def test_site_draws_the_life_cycles(site: Path) -> None:
    text = (site / "development.html").read_text()
    drawn = re.findall(r'data="_images/(graphviz-\w+\.svg)"', text)
    assert len(drawn) == (ROOT / "docs/development.md").read_text().count("```mermaid")
    assert all("</svg>" in (site / "_images" / name).read_text() for name in drawn)
    assert "at_barrier" in "".join((site / "_images" / name).read_text() for name in drawn)


def test_site_with_wrong_links_and_diagrams_is_not_built(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    for name in ("conf.py", "drawings.py"):
        shutil.copy(ROOT / "docs" / name, source)
    (source / "index.md").write_text(
        "# Title\n[gone](gone.md)\n\n```mermaid\nstateDiagram-v2\nnonsense\n```\n"
    )
    (source / "alone.md").write_text("# Alone\n")
    (tmp_path / "mesos_gpu.py").write_text('__version__ = "1"\n')
    done = make(source, tmp_path / "html")
    assert done.returncode != 0
    for words in ("'gone.md'", "a line that is not drawn: nonsense", "alone.md: WARNING"):
        assert words in done.stderr


# --- diagrams


def test_site_diagram_arrow_to_a_group_leads_to_its_edge() -> None:
    drawn = dot('stateDiagram-v2\n[*] --> a\nstate live {\na --> b\n}\nlive --> [*]: why "so"\n')
    assert '"begin" -> "a" []' in drawn
    assert '"a" -> "end" [label=" why \\"so\\" " ltail="cluster_live"]' in drawn


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pie", "no kind of diagram that is drawn: pie"),
        ("flowchart TD\na ==> b", "a line that is not drawn: a ==> b"),
        ("stateDiagram-v2\nstate a {\nb --> c", "a group that does not end: a"),
        ("stateDiagram-v2\n}", "a line that is not drawn: }"),
    ],
)
def test_site_diagram_that_cannot_be_drawn_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(NotDrawn, match=re.escape(wrong)):
        dot(text)


# --- pictures


def test_site_has_pictures_of_the_dashboard_if_they_were_taken(tmp_path: Path) -> None:
    assert pictures(tmp_path, "shots") == ""
    (tmp_path / "job-waits-light.png").touch()
    text = pictures(tmp_path, "shots")
    assert "### job waits" in text
    assert "```{image} shots/job-waits-dark.png\n:alt: job-waits, dark\n:class: only-dark\n" in text
