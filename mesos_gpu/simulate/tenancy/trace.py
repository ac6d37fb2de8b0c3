"""Reader of traces of tenants' jobs: CSV of this project or of Helios, Philly's JSON, and Gavel's folder of traces.

Times are in seconds and count from the first submission. The format is recognized by the columns or the file name.
"""

import csv
import io
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from mesos_gpu.errors import Damaged, NotFound
from mesos_gpu.simulate.trace import read_text

COLUMNS: Final = ("job_id", "tenant", "num_gpu", "submit_time", "duration")
HELIOS: Final = ("job_id", "user", "vc", "gpu_num", "submit_time", "duration")
USERS_DRAWN: Final = 12  # number of users drawn for each tenant if a trace names none
MAX_GPUS: Final = 4096
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
GAVEL_GPU: Final = "v100"  # GPU model whose throughputs give durations
_YES: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class TenantJob:
    """A job of a tenant. It needs all of its GPUs at once for `lasts_s`.

    Attributes:
        job_id: Id that is unique in the trace.
        tenant: Tenant that submits the job.
        gpus: GPUs of all its tasks together.
        submitted_s: Submission, in seconds from the start of the trace.
        lasts_s: Run time without interruption.
        user: User of the tenant.
        preemptible: Whether it may be stopped for others.
        timeout_s: Time limit; None if the job has none.
    """

    job_id: str
    tenant: str
    gpus: int
    submitted_s: float
    lasts_s: float
    user: str = ""
    preemptible: bool = True
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class TenantTrace:
    """Jobs of a trace, with facts about how it was read.

    Attributes:
        jobs: Jobs by submission, then id.
        users_drawn: Whether no job named a user, so that users were drawn by chance.
        left_out: Number of jobs that were left out, by reason.
    """

    jobs: tuple[TenantJob, ...]
    users_drawn: bool
    left_out: Mapping[str, int]


def read_tenants(path: Path, seed: int = 0) -> TenantTrace:
    """Return the jobs of a file, or of Gavel's folder of `*.trace` with `simulation_throughputs.json` in or above it.

    Args:
        path: A CSV file with `COLUMNS` or `HELIOS` columns, plain or gzipped; Philly's cluster_job_log as .json; or a
            folder.
        seed: Seed for drawing users, if no job names one.

    Raises:
        NotFound: The file or folder cannot be read.
        Damaged: A column is missing, or a value is wrong; names the file, the line, the column and the value.
    """
    left_out: dict[str, int] = {}

    def leave_out(why: str) -> None:
        left_out[why] = left_out.get(why, 0) + 1

    if path.is_dir():
        jobs = _gavel(path, leave_out)
    elif path.suffixes[-1:] == [".json"] or path.suffixes[-2:] == [".json", ".gz"]:
        jobs = _philly(path, leave_out)
    else:
        jobs = _table(path, leave_out)
    if not jobs:
        raise Damaged(f"{path} has no jobs", remedy="write one job a line, after the names of the columns")
    first = min(job.submitted_s for job in jobs)
    moved = (replace(job, submitted_s=job.submitted_s - first) for job in jobs)
    line = sorted(moved, key=lambda job: (job.submitted_s, job.job_id))
    drawn = not any(job.user for job in line)
    return TenantTrace(tuple(_with_users(line, seed) if drawn else line), drawn, left_out)


def _with_users(jobs: Iterable[TenantJob], seed: int) -> list[TenantJob]:
    """Return the jobs with users drawn by chance; as in reality, some users have many more jobs than others."""
    chance = random.Random(seed)
    parts = [1 / (rank + 1) for rank in range(USERS_DRAWN)]
    return [
        replace(job, user=f"{job.tenant}-u{chance.choices(range(USERS_DRAWN), parts)[0] + 1}") for job in jobs
    ]


# --- CSV with the columns of this project, or those of Helios


def _table(path: Path, leave_out: Callable[[str], None]) -> list[TenantJob]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    columns = reader.fieldnames or ()
    of_helios = "vc" in columns and "tenant" not in columns
    for column in HELIOS if of_helios else COLUMNS:
        if column not in columns:
            raise Damaged(
                f"{path}, line 1: there is no column {column}, only {', '.join(columns)!r}",
                remedy=f"write a first line that names {', '.join(COLUMNS)}, or Helios' columns",
            )
    jobs: dict[str, TenantJob] = {}
    try:
        for row in reader:
            place = _Place(f"{path}, line {reader.line_num}", row)
            job = _of_helios(place, leave_out) if of_helios else _of_ours(place)
            if job is None:
                continue
            if job.job_id in jobs:
                place.wrong("job_id", "a name that no other job has")
            jobs[job.job_id] = job
    except csv.Error as error:
        raise Damaged(f"{path}, line {reader.line_num}: {error}", remedy="name a CSV file") from error
    return list(jobs.values())


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of a CSV file, with its place for errors."""

    where: str
    row: Mapping[str, str | None]

    def text(self, column: str) -> str:
        """Return the text of a column, which must not be empty."""
        return self.row.get(column) or self.wrong(column, "something")

    def number(self, column: str, *, above: bool = False) -> float:
        """Return the number in a column, at least 0; with `above` more than 0."""
        text = self.row.get(column) or ""
        if not _NUMBER.fullmatch(text) or (above and not float(text)):
            self.wrong(column, f"a number {'above 0' if above else 'from 0 on'}, times in seconds")
        return float(text)

    def gpus(self, column: str) -> int:
        """Return the number of GPUs in a column, from 1 to `MAX_GPUS`."""
        text = self.row.get(column) or ""
        if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:10]) <= MAX_GPUS:
            self.wrong(column, f"a whole number from 1 to {MAX_GPUS}")
        return int(text)

    def wrong(self, column: str, wanted: str) -> NoReturn:
        """Raise Damaged for the value of a column; `wanted` says what it must be."""
        said = self.row.get(column)
        shown = "missing" if said is None else repr(said)
        raise Damaged(f"{self.where}: {column} is {shown}", remedy=f"write {wanted}")


def _of_ours(place: _Place) -> TenantJob:
    said = (place.row.get("preemptible") or "true").lower()
    if said not in _YES:
        place.wrong("preemptible", "true or false")
    return TenantJob(
        place.text("job_id"),
        place.text("tenant"),
        place.gpus("num_gpu"),
        place.number("submit_time"),
        place.number("duration", above=True),
        place.row.get("user") or "",
        _YES[said],
        place.number("timeout", above=True) if place.row.get("timeout") else None,
    )


def _of_helios(place: _Place, leave_out: Callable[[str], None]) -> TenantJob | None:
    """Return the job of a line of Helios' cluster_log.csv; None if it has no GPUs or never ran."""
    if place.number("gpu_num") == 0:
        leave_out("no GPU")
        return None
    if place.number("duration") == 0:
        leave_out("never ran")
        return None
    try:
        submitted = datetime.fromisoformat(place.text("submit_time")).timestamp()
    except ValueError:
        place.wrong("submit_time", "a moment, as 2020-04-01 00:08:16")
    return TenantJob(
        place.text("job_id"), place.text("vc"), place.gpus("gpu_num"), submitted,
        place.number("duration"), place.text("user"),
    )  # fmt: skip


# --- Philly


def _philly(path: Path, leave_out: Callable[[str], None]) -> list[TenantJob]:
    """Return the jobs of Philly's cluster_job_log; the duration of a job is the sum of its attempts."""
    try:
        rows = json.loads(read_text(path))
    except ValueError as error:
        raise Damaged(f"{path} is no JSON: {error}", remedy="name Philly's cluster_job_log") from error
    if not isinstance(rows, list):
        raise Damaged(f"{path} is no list of jobs", remedy="name Philly's cluster_job_log")
    jobs = []
    for number, row in enumerate(rows):
        try:
            job = _of_philly(row, leave_out)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged(
                f"{path}, job {number}: {error!r}",
                remedy="give each job a jobid, vc, user, submitted_time and attempts",
            ) from error
        if job is not None:
            jobs.append(job)
    return jobs


def _of_philly(row: Mapping[str, Any], leave_out: Callable[[str], None]) -> TenantJob | None:
    lasts_s, gpus = 0.0, 0
    for attempt in row["attempts"]:
        if attempt.get("start_time") and attempt.get("end_time"):
            lasts_s += (_moment(attempt["end_time"]) - _moment(attempt["start_time"])).total_seconds()
            gpus = sum(len(host["gpus"]) for host in attempt["detail"])
    if not gpus or lasts_s <= 0:
        leave_out("never ran on GPUs")
        return None
    submitted_s = (_moment(row["submitted_time"]) - datetime(2017, 1, 1)).total_seconds()
    return TenantJob(str(row["jobid"]), str(row["vc"]), gpus, submitted_s, lasts_s, str(row["user"]))


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")


# --- Gavel


def _gavel(folder: Path, leave_out: Callable[[str], None]) -> list[TenantJob]:
    """Return the jobs of Gavel's traces; each file is a virtual cluster, taken as a tenant.

    The duration of a job is its steps divided by the throughput of its model on V100 GPUs.
    """
    files = sorted(folder.glob("*.trace"))
    throughputs = _throughputs(folder)
    jobs = []
    for file in files:
        if file.stem == "philly":
            continue  # this file has the jobs of all others together
        for number, text in enumerate(read_text(file).splitlines()):
            model, _, _, _, steps, arrival, gpus = _gavel_line(file, number, text)
            rate = throughputs.get((model, int(gpus)))
            if rate is None:
                leave_out("no throughput of its model on so many GPUs")
                continue
            jobs.append(
                TenantJob(f"{file.stem}-{number}", file.stem, int(gpus), float(arrival), float(steps) / rate)
            )
    return jobs


def _gavel_line(file: Path, number: int, text: str) -> list[str]:
    fields = text.split("\t")
    good = (
        len(fields) == 7 and all(_NUMBER.fullmatch(field) for field in fields[4:]) and fields[6].isdecimal()
    )
    if not good:
        raise Damaged(
            f"{file}, line {number + 1}: {text[:80]!r} is no job",
            remedy="give 7 fields with tabs between: model, command, folder, argument, steps, arrival, GPUs",
        )
    return fields


def _throughputs(folder: Path) -> dict[tuple[str, int], float]:
    """Return steps per second by model and number of GPUs, from the nearest file in or above the folder."""
    name = "simulation_throughputs.json"
    for above in (folder, *folder.resolve().parents):
        if (above / name).is_file():
            table = json.loads(read_text(above / name))[GAVEL_GPU]
            break
    else:
        raise NotFound(f"there is no {name} in or above {folder}", remedy="put Gavel's there")
    rates = {}
    for key, row in table.items():
        match = re.fullmatch(r"\('(.+)', ([0-9]+)\)", key)
        if match and row["null"] > 0:
            rates[match[1], int(match[2])] = float(row["null"])
    return rates
