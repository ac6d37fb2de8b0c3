"""Reader of a trace of jobs: a CSV file with job_id, num_gpu, submit_time and duration (times in ms).

A share of one GPU is a fraction in num_gpu, as 0.25, or num_gpu of 1 with thousandths in a column gpu_milli.
"""

import csv
import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from mesos_gpu.errors import Damaged, NotFound
from mesos_gpu.model.shares.units import WHOLE, cards_of, milli_of

COLUMNS: Final = ("job_id", "num_gpu", "submit_time", "duration")
PARTS: Final = "gpu_milli"  # optional column
_MAX: Final = 1 << 53
_MORE: Final = {"num_gpu": ", or a part of one GPU in thousandths, as 0.25", PARTS: ""}


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job that needs all of its GPUs at once for `lasts_ms`; times count from the start of the trace."""

    job_id: str
    gpus: int
    submitted_ms: int
    lasts_ms: int
    gpu_milli: int = WHOLE  # thousandths of its GPU, if it has a single one

    @property
    def milli(self) -> int:
        """Thousandths of all its GPUs together."""
        return self.gpus * self.gpu_milli


def read_jobs(path: Path) -> list[TraceJob]:
    """Return all jobs of a CSV file, which may be gzipped; further columns than `COLUMNS` and `PARTS` are ignored.

    Raises:
        NotFound: The file cannot be read.
        Damaged: A column is missing, or a value is wrong; names the file, the line, the column and the value.
    """
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        return _jobs(path, reader)
    except csv.Error as error:
        raise Damaged(f"{path}, line {reader.line_num}: {error}", remedy="name a CSV file") from error


def read_text(path: Path) -> str:
    """Return the text of a file, which may be gzipped.

    Raises:
        NotFound: The file cannot be read.
        Damaged: The content is not text.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise Damaged(f"{path} is no text: {error}", remedy="name a CSV file, plain or gzipped") from error
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", remedy="name a CSV file") from error


def _jobs(path: Path, reader: "csv.DictReader[str]") -> list[TraceJob]:
    for column in COLUMNS:
        if column not in (reader.fieldnames or ()):
            raise Damaged(
                f"{path}, line 1: there is no column {column}, only {', '.join(reader.fieldnames or ())!r}",
                remedy=f"write a first line that names {', '.join(COLUMNS)}",
            )
    jobs: dict[str, TraceJob] = {}
    for row in reader:
        place = f"{path}, line {reader.line_num}"
        job_id = row["job_id"]
        if not job_id or job_id in jobs:
            _wrong(place, "job_id", job_id, "a name that no other job has")
        gpus, milli = _gpus(place, row)
        jobs[job_id] = TraceJob(
            job_id,
            gpus,
            _whole(place, "submit_time", row["submit_time"], least=0),
            _whole(place, "duration", row["duration"], least=1),
            milli,
        )
    if not jobs:
        raise Damaged(f"{path} has no jobs", remedy="write one job a line, after the names of the columns")
    return list(jobs.values())


def _gpus(place: str, row: "dict[str, str]") -> tuple[int, int]:
    """Return the number of GPUs of a row, and the thousandths of each."""
    fraction = milli_of(row["num_gpu"] or "")
    gpus, milli = (
        cards_of(fraction) if fraction else (_whole(place, "num_gpu", row["num_gpu"], least=1), WHOLE)
    )
    if not row.get(PARTS):
        return gpus, milli
    said = _whole(place, PARTS, row[PARTS], least=1)
    if said > WHOLE or (said < WHOLE and gpus > 1) or (fraction and said != fraction):
        _wrong(place, PARTS, row[PARTS], f"thousandths of one GPU, {WHOLE} at most, as num_gpu says")
    return gpus, said


def _whole(place: str, column: str, text: str | None, least: int) -> int:
    if text is None or not (text.isascii() and text.isdecimal()) or not least <= int(text[:20]) <= _MAX:
        _wrong(place, column, text, f"a whole number from {least} on{_MORE.get(column, ', in ms')}")
    return int(text)


def _wrong(place: str, column: str, text: str | None, wanted: str) -> NoReturn:
    said = "missing" if text is None else repr(text)
    raise Damaged(f"{place}: {column} is {said}", remedy=f"write {wanted}")
