"""Regular expressions with the meaning of Java's `matches()`, run in time linear in the text; pure functions.

Python's `re` backtracks: `(a+)+!` on a host name of thirty letters would block the scheduler for minutes. So
expressions are run as automata; features that automata lack, or that Java reads differently, are refused.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_MAX_STATES: Final = 800  # nearly all expressions of 256 characters without {n} have fewer
_MAX_STEPS_KEPT: Final = 4096
_DEEPEST: Final = 40
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\\\[\]])*\]", re.DOTALL)
_SET_OPERATION: Final = re.compile(r"&&|--|~~|\|\|")
_COUNTED: Final = re.compile(r"\{(\d{1,4})(?:(,)(\d{1,4})?)?\}", re.ASCII)
_GROUP: Final = re.compile(r"\((?:\?:|\?<[a-zA-Z][a-zA-Z0-9]*>|(?!\?))")
_ESCAPES: Final = frozenset("dDwWsStnrf")
_ANY: Final = r"[^\n\r\u0085\u2028\u2029]"  # Java's line terminators
_SIMPLE: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}

_Build = Callable[[int], int]  # adds states after a state and returns the last one
_States = int  # a set of states: bit n is state n


class _Unfit(ValueError):
    """Error of a pattern that is no valid expression, or has unsupported features; its message continues "it …"."""


class _Machine:
    """A nondeterministic automaton parsed from an expression. A state has moves with and without a character."""

    def __init__(self, pattern: str) -> None:
        self._flags = re.ASCII
        if pattern.startswith("(?i)"):
            self._flags, pattern = re.ASCII | re.IGNORECASE, pattern[4:]
        self._pattern, self._at, self._depth = pattern, 0, 0
        self._free: list[list[int]] = []
        self._by_char: list[tuple[re.Pattern[str], int] | None] = []
        self._next: dict[tuple[_States, str], _States] = {}
        start = self._state()
        end = self._choice()(start)
        if self._at < len(pattern):
            raise _Unfit("has a ) too many")
        self._reach = self._closed(end)
        self._start, self._end = self._reach[start], 1 << end
        # States by the pattern that a character must match for a move.
        self._classes: dict[re.Pattern[str], _States] = {}
        for state, move in enumerate(self._by_char):
            if move is not None:
                self._classes[move[0]] = self._classes.get(move[0], 0) | 1 << state
        self._movable: dict[str, _States] = {}  # states with a move, by character

    # --- parsing

    def _choice(self) -> _Build:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())

        def build(at: int) -> int:
            end = self._state()
            for option in options:
                self._free[at].append(first := self._state())
                self._free[option(first)].append(end)
            return end

        return build

    def _sequence(self) -> _Build:
        """Parse atoms with their repetitions, up to the next `|` or `)`."""
        parts: list[_Build] = []
        while self._peek() not in ("", "|", ")"):
            here = self._peek()
            if (here == "^" and self._at == 0) or (here == "$" and self._at == len(self._pattern) - 1):
                self._at += 1  # no effect, as the whole text must match
            else:
                parts.append(self._repeated(self._atom()))

        def build(at: int) -> int:
            for part in parts:
                at = part(at)
            return at

        return build

    def _atom(self) -> _Build:
        """Parse a group, a character class, an escape, or a single character."""
        here, rest = self._peek(), self._pattern[self._at :]
        if here == "(":
            return self._group()
        if here == "[":
            characters = _CLASS.match(rest)
            if not characters or _SET_OPERATION.search(characters[0]):
                raise _Unfit(f"has a character class that is not supported: {rest[:20]}")
            return self._single_character(characters[0], characters[0])
        if here == "\\":
            if len(rest) < 2 or (rest[1].isalnum() and rest[1] not in _ESCAPES):
                raise _Unfit(f"has an escape that is not supported: {rest[:2]}")
            return self._single_character(rest[:2], rest[:2])
        if here in "*+?{^$":
            raise _Unfit(f"has a {here} in a place where it has no meaning")
        return self._single_character(here, _ANY if here == "." else re.escape(here))

    def _group(self) -> _Build:
        opened = _GROUP.match(self._pattern, self._at)
        if opened is None:
            raise _Unfit(f"has a group that is not supported: {self._pattern[self._at : self._at + 4]}")
        self._at, self._depth = opened.end(), self._depth + 1
        if self._depth > _DEEPEST:
            raise _Unfit("has groups that are nested too deep")
        body = self._choice()
        if self._peek() != ")":
            raise _Unfit("has a ( too many")
        self._at, self._depth = self._at + 1, self._depth - 1
        return body

    def _single_character(self, text: str, meaning: str) -> _Build:
        """Return the builder of a part that matches one character, by the regular expression `meaning`."""
        self._at += len(text)
        try:
            char = re.compile(meaning, self._flags)
        except re.error as error:
            raise _Unfit(f"has {text}: {error.msg}") from error

        def build(at: int) -> int:
            self._free[at].append(first := self._state())
            end = self._state()
            self._by_char[first] = char, end
            return end

        return build

    def _repeated(self, body: _Build) -> _Build:
        """Parse the repetition after an atom, and return its builder of states."""
        times = self._times()
        if times is None:
            return body
        least, most = times
        if self._peek() == "?":
            self._at += 1  # a lazy count matches the same texts
        if self._peek() in ("*", "+", "?", "{"):
            raise _Unfit(f"has a {self._peek()} after a count")

        def build(at: int) -> int:
            for _ in range(least):
                at = body(at)
            end = self._state()
            if most is None:
                self._free[at].append(again := self._state())
                self._free[body(again)].append(again)
                self._free[again].append(end)
                return end
            for _ in range(most - least):
                self._free[at].append(end)
                at = body(at)
            self._free[at].append(end)
            return end

        return build

    def _times(self) -> tuple[int, int | None] | None:
        """Parse a repetition; return its least and highest count (None for no limit), or None without repetition."""
        here = self._peek()
        if here and here in "*+?":
            self._at += 1
            return _SIMPLE[here]
        if here != "{":
            return None
        count = _COUNTED.match(self._pattern, self._at)
        if count is None:
            raise _Unfit("has a { without a count; write \\{ for the character")
        self._at = count.end()
        least = int(count[1])
        most = (int(count[3]) if count[3] else None) if count[2] else least
        if most is not None and most < least:
            raise _Unfit(f"has an invalid count: {count[0]}")
        return least, most

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _state(self) -> int:
        if len(self._free) >= _MAX_STATES:
            raise _Unfit("is too large")
        self._free.append([])
        self._by_char.append(None)
        return len(self._free) - 1

    # --- running

    @property
    def size(self) -> int:
        """Number of states of the automaton."""
        return len(self._free)

    def _closed(self, end: int) -> list[_States]:
        """Return the relevant states that each state reaches without a character: those with a move, or the end."""
        reach = [(move is not None or state == end) << state for state, move in enumerate(self._by_char)]
        grows = True
        while grows:
            grows = False
            for state in range(len(reach) - 1, -1, -1):
                reached = reach[state]
                for following in self._free[state]:
                    reached |= reach[following]
                if reached != reach[state]:
                    reach[state], grows = reached, True
        return reach

    def _after(self, states: _States, char: str) -> _States:
        movable = self._movable.get(char)
        if movable is None:
            movable = sum(mask for meant, mask in self._classes.items() if meant.fullmatch(char))
            if len(self._movable) < _MAX_STEPS_KEPT:
                self._movable[char] = movable
        moving, after = states & movable, 0
        while moving:
            state = moving.bit_length() - 1
            moving ^= 1 << state
            move = self._by_char[state]
            if move is not None:
                after |= self._reach[move[1]]
        return after

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        states = self._start
        for char in text:
            after = self._next.get((states, char))
            if after is None:
                if len(self._next) >= _MAX_STEPS_KEPT:
                    self._next.clear()
                after = self._next[states, char] = self._after(states, char)
            states = after
        return bool(states & self._end)


@lru_cache(maxsize=1024)
def _machine(pattern: str) -> _Machine:
    return _Machine(pattern)


def matches(pattern: str, text: str) -> bool:
    """Return whether the whole text matches an expression.

    Raises:
        ValueError: The expression is invalid or not supported; the message continues "it …".
    """
    return _machine(pattern).matches(text)


def cost(pattern: str, text: str) -> int:
    """Return the most work of `matches`, in states times characters of some 0.1 µs each.

    Raises:
        ValueError: The expression is invalid or not supported; the message continues "it …".
    """
    return _machine(pattern).size * (len(text) + 1)


def problem_of(pattern: str) -> str:
    """Return what is invalid or not supported in an expression, as a text "it …"; "" if it can be used."""
    try:
        _machine(pattern)
    except _Unfit as unfit:
        return f"it {unfit}"
    return ""
