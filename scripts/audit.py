"""Ask services about the releases that the locks name: `python -m scripts.audit PIP_AUDIT`.

OSV is asked for vulnerabilities, by the program pip-audit; the package index, for releases that were
withdrawn. A release without an answer does not pass. Exit status: 0, no fault is known; 1, a fault is known;
69, a service was not reached, or does not know a release.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import requests
from pypi_simple import PYPI_SIMPLE_ENDPOINT, NoSuchProjectError, PyPISimple, UnsupportedContentTypeError

from mesos_gpu.libmesos.fetch import pip_settings
from scripts import locks

LOCKS: Final = (locks.EVERYTHING, locks.RUN, locks.DRIVER, locks.TOOLS)
BAD, NOT_ASKED = 1, 69  # 69: EX_UNAVAILABLE of sysexits.h
_ASK_S: Final = 900.0


@dataclass(slots=True)
class Verdict:
    """Answers on releases, as lines of text.

    Attributes:
        bad: Known faults of releases.
        not_asked: Questions without an answer.
    """

    bad: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        """Return the exit status."""
        return BAD if self.bad else NOT_ASKED if self.not_asked else 0


def vulnerabilities(report: dict[str, Any], wanted: Iterable[str]) -> Verdict:
    """Read the vulnerabilities of the wanted releases from a report of pip-audit in JSON."""
    verdict, seen = Verdict(), set()
    for each in report["dependencies"]:
        seen.add(each["name"])
        if "skip_reason" in each:
            verdict.not_asked.append(f"{each['name']}: {each['skip_reason']}")
        for fault in each.get("vulns", []):
            fixed = ", ".join(fault["fix_versions"]) or "no release"
            verdict.bad.append(f"{each['name']} {each['version']}: {fault['id']}; fixed in {fixed}")
    verdict.not_asked += [f"{name}: not in the report" for name in sorted(set(wanted) - seen)]
    return verdict


def ask(pip_audit: str, path: Path) -> Verdict:
    """Check the releases of a lock with pip-audit."""
    wanted = [each.name for each in locks.read(path) if each.here]
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        command = [pip_audit, "--vulnerability-service", "osv", "--disable-pip", "--require-hashes"]
        command += ["--progress-spinner", "off", "--format", "json", "--output", str(report)]
        done = subprocess.run(
            [*command, "--requirement", str(path)],
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=False,
        )
        try:
            return vulnerabilities(json.loads(report.read_text()), wanted)
        except (FileNotFoundError, ValueError):
            last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
            return Verdict(not_asked=[f"{path.name}: pip-audit wrote no report: {last}"])


def withdrawn(index: PyPISimple, releases: Iterable[locks.Locked]) -> Verdict:
    """Find the releases that a package index has withdrawn (yanked), and those that it does not have."""
    verdict = Verdict()
    for release in releases:
        try:
            page = index.get_project_page(release.name)
        except (requests.RequestException, NoSuchProjectError, UnsupportedContentTypeError) as error:
            verdict.not_asked.append(f"{release.name}: the package index: {error}")
            continue
        files = [
            each
            for each in page.packages
            if (each.digests or {}).get("sha256") in release.hashes and release.hashes
        ]
        if not files:
            verdict.not_asked.append(f"{release.name} {release.version}: the package index has no file of it")
        elif all(each.is_yanked for each in files):
            reason = files[0].yanked_reason or "no reason given"
            verdict.bad.append(f"{release.name} {release.version}: withdrawn: {reason}")
    return verdict


def main(arguments: Sequence[str]) -> int:
    """Ask, print the answers, and return the exit status."""
    (pip_audit,) = arguments
    verdicts = [ask(pip_audit, path) for path in LOCKS]
    pip, session = pip_settings(), requests.Session()
    session.verify = pip.get("cert", True)
    releases = {(each.name, each.version): each for path in LOCKS for each in locks.read(path)}
    with PyPISimple(pip.get("index-url", PYPI_SIMPLE_ENDPOINT), session=session) as index:
        verdicts.append(withdrawn(index, releases.values()))
    verdict = Verdict(
        sorted({line for each in verdicts for line in each.bad}),
        sorted({line for each in verdicts for line in each.not_asked}),
    )
    print(*(f"audit: {line}" for line in verdict.bad), sep="\n", end="\n" if verdict.bad else "")
    print(*(f"audit: not asked: {line}" for line in verdict.not_asked), sep="\n", file=sys.stderr)
    known, open_questions = len(verdict.bad), len(verdict.not_asked)
    print(
        f"audit: {len(releases)} releases, {known} with known faults, {open_questions} questions without an answer"
    )
    return verdict.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
