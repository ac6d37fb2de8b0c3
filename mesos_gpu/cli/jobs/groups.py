"""The options of `mesos-gpu run` by what they are about, as its --help shows them."""

from collections.abc import Mapping, Sequence
from typing import Final

import click

OTHERS: Final = "Other options"
#: Options by their flags, below what they are about.
GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "What each task gets": (
        "--cpus", "--mem", "--disk", "--gpus", "--gpu-model", "--gpu-memory", "--compute-capability", "--min-driver",
        "--port",
    ),
    "A part of a GPU": ("--gpu-compute", "--gpu-memory-max", "--gpu-isolation"),
    "Several tasks": ("--tasks", "--on-member-failure", "--array"),
    "What it runs in": (
        "--upload", "--image", "--pull", "--container-engine", "--env", "--secret", "--fetch", "--volume", "--user",
        "--control-access", "--shell",
    ),
    "When, and how long": (
        "--queue", "--class", "--priority", "--preemptible", "--notice", "--notice-signal", "--timeout",
        "--max-attempts", "--on-gpu-failure", "--booking",
    ),
    "Where": ("--placement", "--constraint", "--topology", "--segment", "--app", "--near", "--away"),
    "What it is called, and who is told": ("--name", "--label", "--notify"),
}  # fmt: skip


class Grouped(click.Command):
    """A command whose --help has its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups, and then the options that are in none."""
        told = {
            option.opts[-1]: record
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None
        }
        grouped = {flag for flags in GROUPS.values() for flag in flags}
        rest = [flag for flag in told if flag not in grouped]
        for title, flags in (*GROUPS.items(), (OTHERS, rest)):
            records = [told[flag] for flag in flags if flag in told]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
