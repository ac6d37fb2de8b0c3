"""Shares of cards that are asked for at once."""

import re
from concurrent.futures import ThreadPoolExecutor

from mesos_gpu.local.stack import NodeSpec
from tests.conftest import wait_until
from tests.contract.decisions.site import site_of

FULL_OR_WHOLE = re.compile(
    r"lacks 1 GPU with room for its share: .* (is full by memory|is used by (part|whole)-)"
)


def test_shares_of_twelve_jobs_at_once_fill_two_cards_and_the_others_wait() -> None:
    """KAI #2153: pods that come at once over-pack a card, or keep each other from it for ever."""
    with site_of([NodeSpec(2)] * 2) as site:
        whole = [site.submit("whole", 1) for _ in range(2)]
        site.running(*whole)
        with ThreadPoolExecutor(12) as pool:
            jobs = list(pool.map(lambda _: site.submit("part", 0.25), range(12)))
        site.go_on(5)
        wait_until("eight run", lambda: site.states(*jobs).count("running") == 8)
        assert sorted(site.states(*jobs)) == ["pending"] * 4 + ["running"] * 8
        runs = [job for job in jobs if site.states(job) == ["running"]]
        cards = [gpu for job in runs for gpu in site.client.job(job)["gpu_ids"]]
        assert sorted(map(cards.count, set(cards))) == [4, 4]
        rest = [job for job in jobs if job not in runs]
        waits = [site.client.why(job)["summary"] for job in rest]
        assert all(FULL_OR_WHOLE.search(words) for words in waits), waits
        for gpu in site.client.gpus():
            if gpu["sharing"]:
                capacity_mib = gpu["sharing"]["memory_mib"]
                assert capacity_mib is not None
                assert sum(share["memory_mib"] for share in gpu["shares"]) <= capacity_mib
        site.kill(*runs)
        site.running(*rest)
        assert {site.client.job(job)["launches"] for job in jobs} == {1}
