"""Names and constant defaults of the scheduler's options, by which two releases are compared.

Values that an operator gave are not included.
"""

from collections.abc import Iterator

import click
from click.core import ParameterSource

from mesos_gpu.api.spec.cluster.upgrade import Flag

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def flags_of(command: click.Command, context: click.Context | None = None) -> Iterator[Flag]:
    """Yield all options of a command, by name.

    Args:
        command: Command of the scheduler.
        context: Context of the command's call; None if it was not called, so that no option counts as given.
    """
    for option in sorted(_options(command), key=_name):
        source = context.get_parameter_source(option.name or "") if context is not None else None
        yield {"name": _name(option), "given": source in _GIVEN, "default": _default(option)}


def _options(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option)]


def _name(option: click.Option) -> str:
    return max(option.opts, key=len)


def _default(option: click.Option) -> str | None:
    value = option.default
    plain = isinstance(value, str | int | float | bool)
    return str(value) if plain and not callable(value) else None
