"""Reader of the openb trace and of files in its format."""

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mesos_gpu.errors import Damaged, NotFound
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.cluster.shapes import Row, Shape

NODE_COLUMNS: Final = ("cpu_milli", "memory_mib", "gpu")
POD_COLUMNS: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
#: Optional column: thousandths of each GPU's memory; if empty, as much as gpu_milli.
MEMORY: Final = "gpu_memory_milli"


def read_nodes(path: Path) -> list[Row]:
    """Return the nodes of a CSV file, which may be gzipped, with all their resources free.

    Raises:
        NotFound, Damaged: See `read_pods`.
    """
    nodes = []
    for row in _rows(path, NODE_COLUMNS):
        gpus = row.number("gpu", most=64)
        model = row.text("model")
        nodes.append(Row(row.number("cpu_milli"), row.number("memory_mib"), (WHOLE,) * gpus, model))
    return nodes


def read_pods(path: Path) -> list[Shape]:
    """Return the requests of all pods, in the order of the file.

    Raises:
        NotFound: There is no such file.
        Damaged: A column is missing, or a value is wrong; names the file, the line, the column and the value.
    """
    shapes = []
    for row in _rows(path, POD_COLUMNS):
        gpus, milli = row.number("num_gpu", most=64), row.number("gpu_milli", most=WHOLE)
        if gpus and not milli:
            row.wrong("gpu_milli", f"from 1 to {WHOLE}")
        memory = row.number(MEMORY, most=WHOLE) if gpus and row.text(MEMORY) else None
        if memory == 0:
            row.wrong(MEMORY, f"from 1 to {WHOLE}, or nothing")
        if gpus > 1 and milli != WHOLE and memory is None:
            row.wrong("gpu_milli", f"{WHOLE} where num_gpu is more than 1")
        models = tuple(sorted(name for name in row.text("gpu_spec").split("|") if name))
        amounts = row.number("cpu_milli"), row.number("memory_mib")
        shapes.append(Shape(*amounts, gpus, milli or WHOLE, models, memory))
    return shapes


class _Row:
    def __init__(self, path: Path, line: int, values: dict[str, str]) -> None:
        self._path, self._line, self._values = path, line, values

    def text(self, column: str) -> str:
        return self._values.get(column) or ""

    def number(self, column: str, most: int = 1 << 40) -> int:
        text = self.text(column)
        if not text.isdecimal() or int(text) > most:
            self.wrong(column, f"a whole number up to {most}" if most < 1 << 40 else "a whole number")
        return int(text)

    def wrong(self, column: str, wanted: str) -> None:
        raise Damaged(
            f"{self._path}, line {self._line}: {column} is {self.text(column)!r}",
            remedy=f"write {wanted}",
        )


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", remedy="name a CSV file") from error
    try:
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        lacking = [name for name in columns if name not in (reader.fieldnames or ())]
        if lacking:
            raise Damaged(
                f"{path} has no column {', '.join(lacking)}",
                remedy=f"give it the columns {', '.join(columns)}",
            )
        for values in reader:
            yield _Row(path, reader.line_num, values)
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, EOFError) as error:
        raise Damaged(
            f"{path} is no CSV file: {error}", remedy="write one, with a line of column names"
        ) from error
