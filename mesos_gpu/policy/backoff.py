"""How long to wait before the next try. Pure."""


def delay_s(failures: int, *, first_s: float, most_s: float) -> float:
    """Doubles with each failure: `first_s` after the first, never above `most_s`; 0 before any."""
    if failures <= 0:
        return 0.0
    return min(most_s, first_s * 2.0 ** min(failures - 1, 60))
