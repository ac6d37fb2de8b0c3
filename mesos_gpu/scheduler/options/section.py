"""A section of the command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")
Decorators = tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...]  # click's decorators


@dataclass(frozen=True, slots=True)
class Section:
    """Options that belong together.

    Attributes:
        kind: A frozen dataclass; each of its fields is the parameter of an option.
        options: Of each of those.
    """

    kind: type[Any]
    options: Decorators

    def take(self, given: dict[str, Any]) -> Any:
        """Make `kind` of what is given for it, and leave the rest."""
        return self.kind(**{each.name: given.pop(each.name) for each in fields(self.kind)})


def with_options(*lists: Decorators) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command options, in the order in which its help has them."""

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        for option in reversed([option for options in lists for option in options]):
            command = option(command)
        return command

    return decorate


def taken(sections: Mapping[str, Section], given: dict[str, Any]) -> dict[str, Any]:
    """All sections' values by their names, beside what is left of `given`."""
    values = {name: section.take(given) for name, section in sections.items()}
    return {**given, **values}
