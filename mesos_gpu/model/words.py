"""Numbers and names in sentences. Pure."""

from collections.abc import Iterable


def counted(count: float, noun: str) -> str:
    """A number with its noun: `1 GPU`, `2 GPUs`, `0 GPUs`, `0.25 GPUs`. Nouns that only take an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def no_such_model(asked: Iterable[str], known: Iterable[str], of: str = "") -> str:
    """That no node has GPUs of some models, and which there are. `of`: which nodes are meant, after "no node"."""
    return f"no node{of} has a GPU of model {' or '.join(asked)}; there are {', '.join(sorted(set(known)))}"
