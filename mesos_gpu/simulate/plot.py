"""Charts of series as SVG or PNG. They need Matplotlib, which is large and so comes with the extra `plot`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mesos_gpu.errors import BadConfiguration, Unavailable

FORMATS: Final = (".svg", ".png")


def draw(path: Path, title: str, series: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> None:
    """Write a chart of lines.

    Args:
        path: File to write; its name ends in .svg or .png.
        title: Title of the chart.
        series: Points (x, y) by the name that the legend shows.
        x: Label of the horizontal axis, with its unit.
        y: Label of the vertical axis, with its unit.

    Raises:
        BadConfiguration: The file's name has another ending, or it cannot be written.
        Unavailable: Matplotlib is not installed.
    """
    if path.suffix not in FORMATS:
        raise BadConfiguration(f"{path} is neither .svg nor .png", remedy="name it FILE.svg or FILE.png")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Unavailable("drawing needs matplotlib", remedy="pip install 'mesos_gpu[plot]'") from error
    # Not pyplot: it looks for a display, and keeps global state.
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for name, points in series.items():
        axes.plot([at for at, _ in points], [value for _, value in points], label=name, linewidth=1)
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        # With a fixed salt, equal input gives an equal file.
        with rc_context({"svg.hashsalt": "mesos-gpu", "svg.fonttype": "none"}):
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as error:
        raise BadConfiguration(
            f"{path} cannot be written: {error.strerror}",
            remedy="name a file in a directory that you may write",
        ) from error
