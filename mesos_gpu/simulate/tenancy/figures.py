"""Figures of how well tenants were served, computed from the record of a run, for every policy alike."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.simulate.tenancy.record import Record
from mesos_gpu.simulate.tenancy.scenario import Scenario

#: A job is unfairly served if it takes more than this times the time with its tenant alone.
UNFAIR: Final = 1.05
#: A stop was in vain if its beneficiary starts later than this after the notice.
STARTS_WITHIN_S: Final = 300.0
OFTEN: Final = 3  # stops of one job that count as many
HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Main figures by which policies are compared.

    "Alone" is the run in which each tenant has its guaranteed nodes for itself. Service is measured until the last
    submission.

    Attributes:
        unfair_pct: Jobs that took more than 1.05 times their time alone, in %.
        p99_delay_h: 99th percentile of the delay of jobs against their time alone, in hours.
        mean_jct_h: Mean time from a job's submission to its end, in hours.
        lost_gpu_h: GPU hours of work done again and of restarts.
        preemptions: Number of stops.
        in_vain: Number of stops after which the job that was to get the GPUs did not start in time.
        stopped_3x: Number of jobs that were stopped three times or more.
        utilisation: Part of all GPUs that jobs held, from 0 to 1.
        worst_tenant: Highest unfair_pct of a tenant.
        jain: Jain's index of the tenants' service per guaranteed GPU; 1 if all are equal.
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
        worst_ratio: Highest ratio of a job's time to its time alone.
        p99_ratio: 99th percentile of that ratio.
        worst_delay_h: Longest delay of a job against its time alone, in hours.
        worst_mean_ratio: Highest ratio of a tenant's mean job time to that alone.
        mean_alone_h: Mean time of a job alone, in hours.
        restore_p99_h: 99th percentile of the times in which a tenant was owed GPUs, in hours: a job of it waited that
            would have kept it within its guarantee.
        restore_worst_h: Longest of these times, in hours.
        gini: Gini coefficient of the tenants' service per guaranteed GPU; 0 if all are equal.
        envy_pct: Part of all tenants' time in which a tenant was owed GPUs while another was above its guarantee, in %.
        unfair_by_tenant: unfair_pct of each tenant.
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
    """Return the figures of a run, compared with the run in which each tenant is alone on its guaranteed nodes."""
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
    """Yield for each stop for another job whether that job did not start in time."""
    within_s = scenario.costs.notice_s + STARTS_WITHIN_S
    for stop in record.stopped:
        if stop.for_job is not None:
            began = (span.begin_s for span in record.spans[stop.for_job])
            yield not any(stop.at_s <= at_s <= stop.at_s + within_s for at_s in began)


class _Owed:
    """GPU seconds that each tenant held until the last submission, and times in which a tenant was owed GPUs."""

    def __init__(self, scenario: Scenario, record: Record) -> None:
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
    """Yield times with their changes: tenant, GPUs of a job, change of waiting jobs, and change of running jobs."""
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
