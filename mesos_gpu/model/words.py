"""Numbers in sentences. Pure."""


def counted(count: float, noun: str) -> str:
    """A number with its noun: `1 GPU`, `2 GPUs`, `0 GPUs`, `0.25 GPUs`. Nouns that only take an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
