"""The options of a scheduler by their names, with the defaults that are always the same: two releases are compared by
them. What an operator gave is in neither.
"""

from collections.abc import Iterator

import click
from click.core import ParameterSource

from mesos_gpu.api.spec.cluster.upgrade import Flag

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def flags_of(command: click.Command, context: click.Context | None = None) -> Iterator[Flag]:
    """All options of a command, by their names.

    Args:
        command: The scheduler's.
        context: Of its call; None: it was not called, and nothing was given.
    """
    for option in sorted(_options(command), key=_name):
        source = context.get_parameter_source(option.name or "") if context is not None else None
        yield {"name": _name(option), "given": source in _GIVEN, "default": _default(option)}


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def _name(option: click.Option) -> str:
    return max(option.opts, key=len)


def _default(option: click.Option) -> str | None:
    value = option.default
    plain = isinstance(value, str | int | float | bool)
    return str(value) if plain and not callable(value) else None
