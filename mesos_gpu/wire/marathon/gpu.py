"""The object `gpu` of an app: job fields that it passes on, as declared by `JobSpec`, and its own fields; pure."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from mesos_gpu.model.apps.app import PASSED_ON, GpuOptions
from mesos_gpu.model.jobs import fields as of
from mesos_gpu.model.jobs.constraint import Topology
from mesos_gpu.model.jobs.fields import entry
from mesos_gpu.wire.constraints import topology_of, topology_to_json
from mesos_gpu.wire.marathon.kinds import Choice, Field, Flag, Kind, ListOf, MapOf, Number, Record, Text
from mesos_gpu.wire.marathon.problems import Report


class LevelKind:
    """Kind of a field with a level of the network fabric, required or preferred."""

    def read(self, value: object, report: Report) -> Topology | None:
        """Parse an object with one of the keys "required" and "preferred"."""
        topology = topology_of(value)
        if isinstance(topology, str):
            report.wrong(topology)
            return None
        return topology

    def write(self, value: Topology) -> dict[str, str]:
        """Return a level in the form that `read` parses."""
        return topology_to_json(value)


_KINDS: Final[Mapping[type[of.Kind], Callable[[Any], Kind]]] = {
    of.Text: lambda kind: Text(pattern=kind.pattern),
    of.Number: lambda kind: Number(least=kind.least, most=kind.most),
    of.Whole: lambda kind: Number(least=kind.least, most=kind.most, whole=True),
    of.Flag: lambda _: Flag(),
    of.OneOf: lambda kind: Choice(kind.of),
    of.SomeOf: lambda kind: ListOf(Choice(kind.of), distinct=True),
    of.Models: lambda _: ListOf(Text(least=1), distinct=True),
    of.Strings: lambda _: MapOf(Text()),
    of.Level: lambda _: LevelKind(),
}
_OF_APPS: Final[Mapping[str, Kind]] = {
    "in_place": Flag(),
    "progress_deadline_s": Number(least=1, whole=True),
    "auto_revert": Flag(),
}


def _field(name: str) -> Field:
    kind = _OF_APPS[name] if name in _OF_APPS else _kind_of(PASSED_ON[name].kind)
    return Field(name, name, kind, omit_empty=isinstance(kind, ListOf | MapOf))


def _kind_of(kind: of.Kind) -> Kind:
    return entry(_KINDS, kind)(kind)


GPU: Final = Record(tuple(_field(field.name) for field in fields(GpuOptions)), GpuOptions, strict=True)
