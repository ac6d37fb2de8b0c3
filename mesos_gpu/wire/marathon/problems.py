"""What is wrong with a request, as Marathon 1.11 answers it."""

from collections.abc import Iterator
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
        self._mistyped = False

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
        self._mistyped = True
        self.wrong(error, *steps)

    def adopt(self, other: "Report") -> None:
        """Add what another one found, below where this one is."""
        here = "".join(self._steps)
        for path, errors in other._found.items():
            self._found.setdefault(here + path if path != "/" else here or path, {}).update(errors)
        self._mistyped = self._mistyped or other._mistyped

    def doubts(self, *steps: str | int) -> bool:
        """Whether the value is known to be wrong."""
        with self.at(*steps):
            return "".join(self._steps) in self._found

    @property
    def ill_formed(self) -> bool:
        """Whether a type is wrong: then the rules, which need the values, are not looked at."""
        return self._mistyped

    def problems(self) -> Problems | None:
        """What was found; None: nothing."""
        if not self._found:
            return None
        details = tuple(Detail(path, tuple(errors)) for path, errors in self._found.items())
        return Problems(INVALID_JSON if self._mistyped else NOT_VALID, details)
