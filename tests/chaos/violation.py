"""The exception for a broken invariant."""


class Violation(Exception):
    """A broken invariant: `rule` is its name, `words` describes the case, `about` has the ids of objects."""

    def __init__(self, rule: str, words: str, *about: str) -> None:
        super().__init__(f"{rule}: {words}")
        self.rule, self.words, self.about = rule, words, about
