"""Every route under what nobody meant, by who may do nothing and by who may do everything."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.contract.fuzz.judging import FEW, NAMES, POWERLESS, Judge, no_traceback, rss_mib


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    judge = Judge(int(os.environ.get("FUZZ_SEED", "7")))
    yield judge
    judge.close()


def test_fuzzed_requests_without_rights_change_nothing(judge: Judge) -> None:
    with no_traceback():
        judge.run(500, POWERLESS)
    assert judge.statuses[401] > 20
    assert judge.statuses[401] + judge.statuses[429] > 150, judge.statuses  # unnamed requests have a rate


def test_fuzzed_requests_with_few_rights_change_nothing_of_others(judge: Judge) -> None:
    with no_traceback():
        judge.run(500, FEW)
    assert judge.statuses[403] > 5
    assert judge.statuses[404] > 50
    assert judge.statuses[200] > 5
    assert judge.statuses[200] + judge.statuses[201] + judge.statuses[202] > 20, "what is theirs they change"


def test_fuzzed_requests_find_no_defect(judge: Judge) -> None:
    with no_traceback():
        judge.run(500, NAMES)
    assert judge.statuses[200] > 50
    assert judge.statuses[422] > 10


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_requests(judge: Judge, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with no_traceback():
        judge.run(2000, NAMES)  # what is imported and cached at the first use
        judge.start_over()
        before = rss_mib()
        for _ in range(24):
            judge.run(2000, NAMES)
            judge.start_over()
        between = rss_mib()
        judge.run(25_000, POWERLESS)
        for _ in range(13):
            judge.start_over()
            judge.run(2000, FEW)
        after = rss_mib()
    with capsys.disabled():
        print(f"\n{judge.statuses.total()} requests in {time.monotonic() - began:.0f} s, answered:",
              dict(sorted(judge.statuses.items())))  # fmt: skip
        print(
            f"RSS {before:.0f} MiB before, {between:.0f} MiB after half with rights, {after:.0f} MiB after all"
        )
    assert judge.statuses.total() >= 100_000
    assert after - before < 50
