"""How well tenants were served, from what happened to their jobs. All policies are measured by the same."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.simulate.tenancy.record import Record
from mesos_gpu.simulate.tenancy.scenario import Scenario

UNFAIR: Final = 1.05  # times what the job takes where its tenant is alone
STARTS_WITHIN_S: Final = 300.0  # after the notice, or the stop was in vain
OFTEN: Final = 3  # stops of one job
HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What policies are compared by.

    Attributes:
        unfair_pct: Jobs that took more than 1.05 times what they take where their tenant is alone on its nodes.
        p99_delay_h: Of what a job took beyond that; 99 of 100 are below.
        mean_jct_h: From a job's submission to its end.
        lost_gpu_h: Work that was done again, and restarts, by GPUs.
        preemptions: Stops.
        in_vain: Stops after which who was to have the room did not start.
        stopped_3x: Jobs stopped three times and more.
        utilisation: GPUs held, while jobs came; 1 is all.
        worst_tenant: The highest unfair_pct of a tenant.
        jain: Of the tenants' service while jobs came, by guarantee: 1 is all alike.
    """

    unfair_pct: float
    p99_delay_h: float
    mean_jct_h: float
    lost_gpu_h: float
    preemptions: float
    in_vain: float
    stopped_3x: float
    utilisation: float
    worst_tenant: float
    jain: float


@dataclass(frozen=True, slots=True)
class More:
    """Further figures.

    Attributes:
        worst_ratio: The worst job's time by that alone.
        p99_ratio: 99 of 100 are below.
        worst_delay_h: Of what a job took beyond what it takes alone.
        worst_mean_ratio: The worst tenant's mean time of a job, by that alone.
        mean_alone_h: The mean time of a job alone.
        restore_p99_h: How long a tenant held less than its guarantee while a job waited that it had room for by
            number; 99 of 100 such times are below.
        restore_worst_h: The longest.
        gini: Of the tenants' service by guarantee: 0 is all alike.
        envy_pct: Of tenants' time, how much a tenant was so, while another held more than its guarantee.
        unfair_by_tenant: unfair_pct of each.
    """

    worst_ratio: float
    p99_ratio: float
    worst_delay_h: float
    worst_mean_ratio: float
    mean_alone_h: float
    restore_p99_h: float
    restore_worst_h: float
    gini: float
    envy_pct: float
    unfair_by_tenant: Mapping[str, float]


def measure(scenario: Scenario, record: Record, alone: Record) -> tuple[Figures, More]:
    """Figures of a run beside that where each tenant has its own nodes."""
    jobs = scenario.jobs
    took = {job.job_id: record.ended_s[job.job_id] - job.submitted_s for job in jobs}
    own = {job.job_id: alone.ended_s[job.job_id] - job.submitted_s for job in jobs}
    unfair = Counter(job.tenant for job in jobs if took[job.job_id] > UNFAIR * own[job.job_id])
    count = Counter(job.tenant for job in jobs)
    by_tenant = {tenant: round(100 * unfair[tenant] / count[tenant], 2) for tenant in sorted(count)}
    delays = sorted(took[job.job_id] - own[job.job_id] for job in jobs)
    ratios = sorted(took[job.job_id] / own[job.job_id] for job in jobs)
    times, owed = Counter(stop.job_id for stop in record.stopped), _Owed(scenario, record)
    service = [owed.served[tenant] / scenario.gpus(tenant) for tenant in sorted(scenario.guarantees)]
    figures = Figures(
        unfair_pct=round(100 * unfair.total() / len(jobs), 2),
        p99_delay_h=round(max(0.0, _percentile(delays, 0.99)) / HOUR, 2),
        mean_jct_h=round(sum(took.values()) / len(jobs) / HOUR, 2),
        lost_gpu_h=round(sum(stop.lost_gpu_s for stop in record.stopped) / HOUR, 1),
        preemptions=len(record.stopped),
        in_vain=sum(_in_vain(scenario, record)),
        stopped_3x=sum(each >= OFTEN for each in times.values()),
        utilisation=round(sum(owed.served.values()) / (scenario.cluster.gpus * owed.until_s), 4),
        worst_tenant=max(by_tenant.values()),
        jain=round(_jain(service), 4),
    )
    means = [
        sum(took[job.job_id] for job in jobs if job.tenant == tenant)
        / sum(own[job.job_id] for job in jobs if job.tenant == tenant)
        for tenant in count
    ]
    more = More(
        worst_ratio=round(ratios[-1], 2),
        p99_ratio=round(_percentile(ratios, 0.99), 3),
        worst_delay_h=round(max(0.0, delays[-1]) / HOUR, 2),
        worst_mean_ratio=round(max(means), 3),
        mean_alone_h=round(sum(own.values()) / len(jobs) / HOUR, 2),
        restore_p99_h=round(_percentile(sorted(owed.waits_s) or [0.0], 0.99) / HOUR, 2),
        restore_worst_h=round(max(owed.waits_s, default=0.0) / HOUR, 2),
        gini=round(_gini(service), 4),
        envy_pct=round(100 * owed.envied_s / (owed.until_s * len(count)), 3),
        unfair_by_tenant=by_tenant,
    )
    return figures, more


def _percentile(line: Sequence[float], share: float) -> float:
    return line[min(len(line) - 1, int(share * len(line)))]


def _jain(parts: Sequence[float]) -> float:
    squares = sum(part * part for part in parts)
    return sum(parts) ** 2 / (len(parts) * squares) if squares else 1.0


def _gini(parts: Sequence[float]) -> float:
    total, n = sum(parts), len(parts)
    ranked = sum((2 * rank - n + 1) * part for rank, part in enumerate(sorted(parts)))
    return ranked / (n * total) if total else 0.0


def _in_vain(scenario: Scenario, record: Record) -> Iterator[bool]:
    """Whether who was to have the room did not start, for each stop."""
    within_s = scenario.costs.notice_s + STARTS_WITHIN_S
    for stop in record.stopped:
        if stop.for_job is not None:
            began = (span.begin_s for span in record.spans[stop.for_job])
            yield not any(stop.at_s <= at_s <= stop.at_s + within_s for at_s in began)


class _Owed:
    """Goes through a run once: what each tenant was served while jobs came, and when one was owed GPUs."""

    def __init__(self, scenario: Scenario, record: Record) -> None:
        """Look at all of it."""
        self.until_s = max(job.submitted_s for job in scenario.jobs) or 1.0
        self.served = dict.fromkeys(scenario.guarantees, 0.0)  # GPU seconds
        self.waits_s: list[float] = []
        self.envied_s = 0.0
        self._scenario, self._now = scenario, 0.0
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, Counter[int]] = {tenant: Counter() for tenant in scenario.guarantees}
        self._since: dict[str, float] = {}
        for at_s, changes in _grouped(scenario, record):
            self._pass(at_s)
            for tenant, gpus, waits, holds in changes:
                self._waiting[tenant][gpus] += waits
                self._held[tenant] += holds * gpus
            for tenant in {change[0] for change in changes}:
                self._look(tenant)

    def _pass(self, at_s: float) -> None:
        span = min(at_s, self.until_s) - min(self._now, self.until_s)
        if span > 0:
            for tenant, gpus in self._held.items():
                self.served[tenant] += gpus * span
            above = [tenant for tenant, gpus in self._held.items() if gpus > self._scenario.gpus(tenant)]
            self.envied_s += span * sum(any(other != tenant for other in above) for tenant in self._since)
        self._now = at_s

    def _look(self, tenant: str) -> None:
        room = self._scenario.gpus(tenant) - self._held[tenant]
        owed = any(count and gpus <= room for gpus, count in self._waiting[tenant].items())
        if owed:
            self._since.setdefault(tenant, self._now)
        elif tenant in self._since:
            waited = self._now - self._since.pop(tenant)
            if waited > 0:
                self.waits_s.append(waited)


def _grouped(scenario: Scenario, record: Record) -> Iterator[tuple[float, list[tuple[str, int, int, int]]]]:
    """All that changes at a time: tenant, GPUs of the job, whether one more waits, whether one more holds them."""
    at: dict[float, list[tuple[str, int, int, int]]] = {}
    for job in scenario.jobs:
        at.setdefault(job.submitted_s, []).append((job.tenant, job.gpus, 1, 0))
        for span in record.spans[job.job_id]:
            at.setdefault(span.begin_s, []).append((job.tenant, job.gpus, -1, 1))
            ends = span.end_s >= record.ended_s[job.job_id]
            at.setdefault(span.end_s, []).append((job.tenant, job.gpus, 0 if ends else 1, -1))
    return ((at_s, at[at_s]) for at_s in sorted(at))


def mean(all_figures: Sequence[Figures]) -> Figures:
    """Average the figures of several seeds."""

    def of(name: str) -> float:
        total: float = sum(getattr(each, name) for each in all_figures)
        return round(total / len(all_figures), 4)

    return Figures(**{name: of(name) for name in Figures.__dataclass_fields__})
