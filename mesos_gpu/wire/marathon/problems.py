"""Problems of a request, in the form of Marathon 1.11's answers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

INVALID_JSON: Final = "Invalid JSON"
NOT_VALID: Final = "Object is not valid"


@dataclass(frozen=True, slots=True)
class Detail:
    """All problems at one place. `path` is as in "/healthChecks(0)/path", or "/" for the whole."""

    path: str
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problems:
    """A refusal with all problems. `details` is a sentence if the body is not JSON."""

    message: str
    details: tuple[Detail, ...] | str
    status: int = 422  # HTTP status

    def as_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        if isinstance(self.details, str):
            return {"message": self.message, "details": self.details}
        details = [{"path": detail.path, "errors": list(detail.errors)} for detail in self.details]
        return {"message": self.message, "details": details}


class Report:
    """Collector of problems with a current path, which follows the parser down and up the document."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        self._found: dict[str, dict[str, None]] = {}
        self._mistyped: list[str] = []

    @contextmanager
    def at(self, *steps: str | int) -> Iterator[None]:
        """Append steps to the current path within a `with`: a name is a key, a number an index."""
        self._steps += [f"({step})" if isinstance(step, int) else f"/{step}" for step in steps]
        try:
            yield
        finally:
            del self._steps[len(self._steps) - len(steps) :]

    def wrong(self, error: str, *steps: str | int) -> None:
        """Report that the value at the current path is not allowed."""
        with self.at(*steps):
            self._found.setdefault("".join(self._steps) or "/", {})[error] = None

    def mistyped(self, error: str, *steps: str | int) -> None:
        """Report that the value has a wrong type; `error` is a code of Play, such as "error.expected.jsstring"."""
        with self.at(*steps):
            self._mistyped.append("".join(self._steps))
            self.wrong(error)

    def adopt(self, other: "Report") -> None:
        """Add the problems of another report below the current path."""
        here = "".join(self._steps)
        for path, errors in other._found.items():
            self._found.setdefault(here + path if path != "/" else here or path, {}).update(errors)
        self._mistyped += [here + path for path in other._mistyped]

    def adopt_others(self, other: "Report", follows: Mapping[str, frozenset[str]]) -> None:
        """Add the problems of another report on the same object, from which values of wrong types were left out.

        Args:
            other: Report on the object without these values.
            follows: Other fields that may cause problems of a field, by field, or "" for the whole object. A problem is
                left out if one of these has a wrong type.
        """
        wrong_fields = {_top(path) for path in self._mistyped}
        for path, errors in other._found.items():
            is_consequence = not wrong_fields.isdisjoint(follows.get(_top(path), frozenset()))
            if not is_consequence and not any(_meet(path, wrong) for wrong in self._mistyped):
                self._found.setdefault(path, {}).update(errors)

    def doubts(self, *steps: str | int) -> bool:
        """Return whether a problem was reported for the value."""
        with self.at(*steps):
            return "".join(self._steps) in self._found

    @property
    def ill_formed(self) -> bool:
        """Whether a value has a wrong type, so that rules that need the values are skipped."""
        return bool(self._mistyped)

    @property
    def found(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each place with its problems."""
        return ((path, tuple(errors)) for path, errors in self._found.items())

    def problems(self) -> Problems | None:
        """Return all reported problems; None without any."""
        if not self._found:
            return None
        details = tuple(Detail(path, errors) for path, errors in self.found)
        return Problems(INVALID_JSON if self._mistyped else NOT_VALID, details)


def _top(path: str) -> str:
    """Return the first name in a path, "container" for "/container/volumes(0)"."""
    return path.removeprefix("/").partition("/")[0].partition("(")[0]


def _meet(path: str, wrong: str) -> bool:
    """Return whether a problem is at a value of a wrong type, in the list that contains it, or around it."""
    listed = wrong.rpartition("(")[0] or wrong
    return path != "/" and (_is_below(path, listed) or _is_below(wrong, path))


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith((f"{top}/", f"{top}("))
