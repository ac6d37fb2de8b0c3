"""What is wrong with a request, as Marathon 1.11 answers it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

INVALID_JSON: Final = "Invalid JSON"
NOT_VALID: Final = "Object is not valid"


@dataclass(frozen=True, slots=True)
class Detail:
    """All that is wrong at one place. `path` is as "/healthChecks(0)/path"; the whole is "/"."""

    path: str
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problems:
    """A refusal. `details` is a sentence where the body is no JSON at all."""

    message: str
    details: tuple[Detail, ...] | str
    status: int = 422  # of HTTP

    def as_json(self) -> dict[str, Any]:
        """The body of the answer."""
        if isinstance(self.details, str):
            return {"message": self.message, "details": self.details}
        details = [{"path": detail.path, "errors": list(detail.errors)} for detail in self.details]
        return {"message": self.message, "details": details}


class Report:
    """Collects what is wrong, below a path that grows and shrinks as the reader goes down and up."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        self._found: dict[str, dict[str, None]] = {}
        self._mistyped: list[str] = []

    @contextmanager
    def at(self, *steps: str | int) -> Iterator[None]:
        """Within the `with`, paths are below these: a name is a key, a number an index."""
        self._steps += [f"({step})" if isinstance(step, int) else f"/{step}" for step in steps]
        try:
            yield
        finally:
            del self._steps[len(self._steps) - len(steps) :]

    def wrong(self, error: str, *steps: str | int) -> None:
        """The value is not allowed."""
        with self.at(*steps):
            self._found.setdefault("".join(self._steps) or "/", {})[error] = None

    def mistyped(self, error: str, *steps: str | int) -> None:
        """The value is not even of its type; `error` is Play's code, as "error.expected.jsstring"."""
        with self.at(*steps):
            self._mistyped.append("".join(self._steps))
            self.wrong(error)

    def adopt(self, other: "Report") -> None:
        """Add what another one found, below where this one is."""
        here = "".join(self._steps)
        for path, errors in other._found.items():
            self._found.setdefault(here + path if path != "/" else here or path, {}).update(errors)
        self._mistyped += [here + path for path in other._mistyped]

    def adopt_others(self, other: "Report", follows: Mapping[str, frozenset[str]]) -> None:
        """Add what another report found in the rest of an object with values of a wrong type.

        Args:
            other: The report of the object without those values.
            follows: Fields that problems of another field may follow from, by that field, or "" for the whole
                object: such problems are left out if one of the fields has a wrong type.
        """
        wrong_fields = {_top(path) for path in self._mistyped}
        for path, errors in other._found.items():
            is_consequence = not wrong_fields.isdisjoint(follows.get(_top(path), frozenset()))
            if not is_consequence and not any(_meet(path, wrong) for wrong in self._mistyped):
                self._found.setdefault(path, {}).update(errors)

    def doubts(self, *steps: str | int) -> bool:
        """Whether the value is known to be wrong."""
        with self.at(*steps):
            return "".join(self._steps) in self._found

    @property
    def ill_formed(self) -> bool:
        """Whether a type is wrong: then the rules, which need the values, are not looked at."""
        return bool(self._mistyped)

    @property
    def found(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each place with all that was found there."""
        return ((path, tuple(errors)) for path, errors in self._found.items())

    def problems(self) -> Problems | None:
        """Return what was found; None if nothing was."""
        if not self._found:
            return None
        details = tuple(Detail(path, errors) for path, errors in self.found)
        return Problems(INVALID_JSON if self._mistyped else NOT_VALID, details)


def _top(path: str) -> str:
    """Return the first name of a path, as "container" of "/container/volumes(0)"."""
    return path.removeprefix("/").partition("/")[0].partition("(")[0]


def _meet(path: str, wrong: str) -> bool:
    """Whether a problem is at a value of a wrong type, in the list that has it, or around it."""
    listed = wrong.rpartition("(")[0] or wrong
    return path != "/" and (_is_below(path, listed) or _is_below(wrong, path))


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith((f"{top}/", f"{top}("))
