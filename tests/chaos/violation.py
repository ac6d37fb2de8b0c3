"""What a run of random acts looks for."""


class Violation(Exception):
    """An invariant is broken. `rule` is its name, `words` the case, `about` the ids concerned."""

    def __init__(self, rule: str, words: str, *about: str) -> None:
        super().__init__(f"{rule}: {words}")
        self.rule, self.words, self.about = rule, words, about
