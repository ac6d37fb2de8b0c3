"""The supply chain: no known advisory, hashes, compatible licences, and a bill of materials."""

import functools
import json
import re
import shutil
import stat
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cyclonedx.output.json import JsonV1Dot6
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pypi_simple import PyPISimple

from scripts import audit, locks, sbom
from tests.unit.test_requirements import RUNTIME

ROOT = Path(__file__).parents[2]
ALL = (locks.EVERYTHING, locks.RUN, locks.DRIVER, locks.TOOLS)


class Advisory(NamedTuple):
    """Releases of a package that are known to be bad."""

    package: str
    affected: str
    id: str
    what: str

    def against(self, name: str, version: Version) -> bool:
        """Whether it is about this release."""
        return name == self.package and SpecifierSet(self.affected).contains(version, prereleases=True)


ADVISORIES = [
    Advisory(**each) for each in tomllib.loads((ROOT / "tests/data/advisories.toml").read_text())["advisory"]
]


def known(name: str, version: Version) -> list[str]:
    """Return the advisories against a release."""
    return [f"{name} {version}: {each.id}: {each.what}" for each in ADVISORIES if each.against(name, version)]


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.name))
def test_locked_releases_have_no_known_advisory(path: Path) -> None:
    bad = [line for each in locks.read(path) for line in known(each.name, each.version)]
    assert bad == [], "raise the bound in setup.cfg and run: make lock"


def test_lower_bounds_have_no_known_advisory() -> None:
    """An installation without the lock may get the lowest release that setup.cfg allows."""
    lowest = {
        canonicalize_name(one.name): Version(bound.version)
        for one in RUNTIME
        for bound in one.specifier
        if bound.operator == ">="
    }
    assert [line for name, version in lowest.items() for line in known(name, version)] == []


def test_advisories_are_about_locked_packages_and_name_their_source() -> None:
    names = {each.name for path in ALL for each in locks.read(path)}
    for each in ADVISORIES:
        assert each.package in names, each
        assert re.fullmatch(r"GHSA(-[0-9a-z]{4}){3}|CVE-\d{4}-\d{4,}|PYSEC-\d{4}-\d+", each.id), each


def test_advisory_against_a_bad_release_is_found() -> None:
    assert len(known("starlette", Version("1.0.0"))) == 3
    assert known("starlette", Version("1.3.1")) == []


# --- locks


def test_lock_of_hosts_is_part_of_the_lock_of_developers() -> None:
    everything = {
        (each.name, each.version, str(each.marker)): each.hashes for each in locks.read(locks.EVERYTHING)
    }
    for each in locks.read(locks.RUN):
        assert set(everything[each.name, each.version, str(each.marker)]) == set(each.hashes), each.name


def test_lock_of_hosts_is_exactly_the_needs_of_the_platform() -> None:
    assert {each.name for each in locks.read(locks.RUN) if each.here} == locks.all_needs(
        "mesos_gpu", "all"
    ), "run: make lock"


def test_lock_installations_require_hashes() -> None:
    texts = [
        *(ROOT / "scripts").glob("*.sh"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
        ROOT / "SECURITY.md",
    ]
    lines = [
        line for path in texts for line in path.read_text().splitlines() if re.search(r"-r \S+\.lock", line)
    ]
    assert len(lines) >= 3
    assert [line for line in lines if "--require-hashes" not in line] == []


# --- licences

#: Permissive: they ask for their notice, and go with the Apache License 2.0.
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0",
    "Zlib", "LicenseRef-BSD", "LicenseRef-public-domain",
}  # fmt: skip
#: Why a distribution may have another licence.
EXCEPTIONS = {
    "certifi": "MPL-2.0: on its own files, which are installed unchanged",
    "codespell": "GPL-2.0: a program that checks start; no part of what is distributed",
    "hypothesis": "MPL-2.0: of tests",
    "pathspec": "MPL-2.0: of the type checker, on its own files",
}
#: What hosts install may not have these, whatever the reason.
STRONG = re.compile(r"\b(A|L)?GPL|SSPL|BUSL|CC-BY-NC|unknown", re.I)


def allowed(expression: str) -> bool:
    """Whether a licence expression can be met by licences of the list."""
    licensing = locks.licensing()
    parsed = licensing.parse(expression)
    terms = {term: licensing.TRUE if str(term) in ALLOWED else licensing.FALSE for term in parsed.symbols}
    return bool(parsed.subs(terms, simplify=True) == licensing.TRUE)


@functools.cache
def stated() -> dict[str, str]:
    """Return the licence of each locked distribution that is installed here."""
    here = [each for path in (locks.EVERYTHING, locks.DRIVER) for each in locks.read(path) if each.here]
    return {each.name: locks.licence(locks.installed(each.name).metadata.json) for each in here}


def test_licences_are_compatible_with_ours() -> None:
    others = {name: words for name, words in stated().items() if not allowed(words)}
    assert set(others) == set(EXCEPTIONS), others


def test_licences_of_hosts_have_no_strong_copyleft() -> None:
    licences = stated()
    names = [each.name for path in (locks.RUN, locks.DRIVER) for each in locks.read(path) if each.here]
    assert {name: licences[name] for name in names if STRONG.search(licences[name])} == {}


@pytest.mark.parametrize(
    ("fields", "expected", "good"),
    [
        ({"license_expression": "Apache-2.0 OR GPL-3.0-only"}, "Apache-2.0 OR GPL-3.0-only", True),
        ({"license_expression": "MIT AND GPL-3.0-only"}, "MIT AND GPL-3.0-only", False),
        ({"license": "Apache 2.0"}, "Apache-2.0", True),
        ({"license": "AGPL-3.0-only"}, "AGPL-3.0-only", False),
        ({"classifier": ["License :: OSI Approved :: MIT License"]}, "MIT", True),
        ({"license": "ask my lawyer"}, locks.UNKNOWN, False),
        ({}, locks.UNKNOWN, False),
    ],
)
def test_licence_is_read_and_judged(fields: dict[str, Any], expected: str, good: bool) -> None:
    assert locks.licence(fields) == expected
    assert allowed(expected) is good


# --- what is left out of a check of our code


def test_bandit_exceptions_name_their_check_and_reason() -> None:
    """By the test that is wrong there, and why."""
    lines = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for top in ("mesos_gpu", "isolator", "volumes", "bench", "scripts")
        for path in sorted((ROOT / top).rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"#\s*nosec", line)
    ]
    assert lines
    assert [line for line in lines if not re.search(r"# nosec B\d{3}(,B\d{3})* # \S", line)] == []


# --- bill of materials


EPOCH = ("SOURCE_DATE_EPOCH", "1700000000")


@pytest.fixture(scope="module")
def bill_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the bill of materials, which is validated against the schema of CycloneDX."""
    path = tmp_path_factory.mktemp("bill") / "bill"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*EPOCH)
        assert sbom.main([str(path)]) == 0
    return path.read_text()


def test_bill_of_materials_is_reproducible(bill_text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*EPOCH)
    assert f"{JsonV1Dot6(sbom.bill()).output_as_string(indent=2)}\n" == bill_text


def test_bill_of_materials_is_complete(bill_text: str) -> None:
    bill = json.loads(bill_text)
    assert bill["metadata"]["component"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    components = {each["name"]: each for each in bill["components"]}
    locked = {each.name: each for path in (locks.RUN, locks.DRIVER) for each in locks.read(path) if each.here}
    assert set(components) == {*locked, "libmesos"}
    for name, release in locked.items():
        assert components[name]["version"] == str(release.version)
        assert {each["content"] for each in components[name]["hashes"]} == set(release.hashes)
        assert components[name]["licenses"], name
        assert components[name]["purl"] == f"pkg:pypi/{name}@{release.version}"
    edges = {each["ref"]: set(each.get("dependsOn", [])) for each in bill["dependencies"]}
    assert edges[f"requests=={locked['requests'].version}"] >= {f"urllib3=={locked['urllib3'].version}"}
    assert "libmesos==1.11.0" in edges[bill["metadata"]["component"]["bom-ref"]]


# --- the audit: what a service does not say is not taken for good

CLEAN = {"name": "good", "version": "1", "vulns": []}
FAULTY = {"name": "bad", "version": "2", "vulns": [{"id": "GHSA-1", "fix_versions": ["3"], "aliases": []}]}
SKIPPED = {"name": "who", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("dependencies", "status"),
    [([CLEAN], 0), ([CLEAN, FAULTY], 1), ([CLEAN, SKIPPED], 69), ([FAULTY, SKIPPED], 1), ([], 69)],
    ids=["clean", "faulty", "skipped", "both", "left out"],
)
def test_audit_report_is_judged(dependencies: list[dict[str, Any]], status: int) -> None:
    wanted = [each["name"] for each in dependencies] or ["good"]
    assert audit.vulnerabilities({"dependencies": dependencies, "fixes": []}, wanted).status == status


def test_audit_without_its_service_is_not_a_success(tmp_path: Path) -> None:
    """The program fails as it does for a fault that it knows."""
    program = tmp_path / "pip-audit"
    program.write_text("#!/bin/sh\necho no route to host >&2\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    verdict = audit.ask(str(program), locks.DRIVER)
    assert verdict.status == audit.NOT_ASKED
    assert verdict.not_asked == ["pymesos.lock: pip-audit wrote no report: no route to host"]


def test_audit_asks_for_every_release_of_a_lock(tmp_path: Path) -> None:
    said, program = tmp_path / "said", tmp_path / "pip-audit"
    report = json.dumps(
        {"dependencies": [{"name": "pymesos", "version": "0.3.15", "vulns": []}], "fixes": []}
    )
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(said)!r}, 'w').write(' '.join(sys.argv))\n"
        f"open(sys.argv[sys.argv.index('--output') + 1], 'w').write({report!r})\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert audit.ask(str(program), locks.DRIVER).status == 0
    assert "--require-hashes" in said.read_text()
    assert said.read_text().endswith(str(locks.DRIVER))


class Index(BaseHTTPRequestHandler):
    """A package index with one project, of two releases; one was withdrawn."""

    def do_GET(self) -> None:
        files = [
            {"filename": f"one-{version}-py3-none-any.whl", "url": f"one-{version}.whl", "yanked": yanked,
             "hashes": {"sha256": digit * 64}}
            for version, digit, yanked in (("1", "a", "breaks disks"), ("2", "b", False))
        ]  # fmt: skip
        body = json.dumps({"meta": {"api-version": "1.0"}, "name": "one", "files": files}).encode()
        self.send_response(200 if self.path == "/simple/one/" else 404)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[PyPISimple]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        with PyPISimple(f"http://127.0.0.1:{server.server_port}/simple/") as client:
            yield client
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("name", "version", "digit", "status"),
    [("one", "2", "b", 0), ("one", "1", "a", 1), ("one", "3", "c", 69), ("other", "1", "a", 69)],
    ids=["there", "withdrawn", "unknown release", "unknown project"],
)
def test_audit_finds_a_withdrawn_release(
    index: PyPISimple, name: str, version: str, digit: str, status: int
) -> None:
    release = locks.Locked(name, Version(version), None, (digit * 64,))
    assert audit.withdrawn(index, [release]).status == status


def test_audit_without_its_index_is_not_a_success() -> None:
    with PyPISimple("http://127.0.0.1:1/simple/") as nobody:
        release = locks.Locked("one", Version("1"), None, ("a" * 64,))
        assert audit.withdrawn(nobody, [release]).status == audit.NOT_ASKED


def test_lock_without_a_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text("one>=1 --hash=sha256:" + "a" * 64)
    with pytest.raises(ValueError, match="not one version"):
        locks.read(tmp_path / "a.lock")


def test_bandit_is_installed_for_the_checks() -> None:
    assert shutil.which("bandit", path=str(Path(sys.executable).parent))
    assert "bandit --quiet -ll --recursive mesos_gpu isolator volumes" in (ROOT / "Makefile").read_text()
