"""`mesos-gpu volume plan`: the files that a volume would contain, and reasons for excluded files."""

import os
from dataclasses import asdict
from pathlib import Path

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.host.volume import (
    json_option,
    library_path_option,
    program_path_option,
    root_of,
    root_option,
    version_option,
    warn,
)
from volumes.compare import Counted, compare, counted, markdown
from volumes.discover import discover
from volumes.manifest import plan as plan_of
from volumes.model import DriverFiles, Plan
from volumes.places import given_by
from volumes.version import driver_version as version_of


@click.command()
@root_option
@library_path_option
@program_path_option
@version_option
@click.option(
    "--compare",
    "as_comparison",
    is_flag=True,
    help="Compare with Mesos, nvidia-docker 1 and libnvidia-container.",
)
@json_option
def plan(
    root: Path | None,
    libraries: tuple[str, ...],
    programs: tuple[str, ...],
    driver_version: str | None,
    as_comparison: bool,
    as_json: bool,
) -> None:
    """Show which files `build` would include, and why not others. Nothing is changed."""
    files = discover(root_of(root), given_by(os.environ, libraries, programs))
    volume_plan = plan_of(files, version_of(root_of(root), files, driver_version))
    if as_comparison:
        _compared(files, volume_plan, as_json)
    elif as_json:
        output.document(_document(volume_plan, counted(files, volume_plan)))
    else:
        _shown(volume_plan, counted(files, volume_plan))


def _document(made: Plan, own_list: Counted) -> dict[str, object]:
    return {
        "version": made.version,
        "entries": [{**asdict(entry), "group": entry.group.value} for entry in made.entries],
        "links": [asdict(link) for link in made.links],
        "excluded": [asdict(excluded) for excluded in made.excluded],
        "missing": list(made.missing),
        "own_list": asdict(own_list),
    }


def _shown(made: Plan, own_list: Counted) -> None:
    """Print the planned files, and the excluded ones with reasons."""
    names: dict[str, list[str]] = {}
    for link in made.links:
        names.setdefault(link.file, []).append(link.name)
    rows = [
        (entry.target, entry.group.value, entry.source, ", ".join(names.get(entry.target, ())))
        for entry in made.entries
    ]
    output.line(f"driver {made.version}: {len(made.entries)} files, {len(made.links)} links")
    output.line(own_list.text)
    output.table(("FILE", "GROUP", "FROM", "ALSO"), rows, empty="No files.")
    if made.excluded:
        output.line("")
        output.table(
            ("LEFT OUT", "BECAUSE"),
            [(excluded.path, excluded.reason) for excluded in made.excluded],
            empty="",
        )
    warn(made.warnings)
    for text in made.missing:
        output.note(text)


def _compared(files: DriverFiles, made: Plan, as_json: bool) -> None:
    rows = compare(files, made)
    if as_json:
        output.document([asdict(row) for row in rows])
    else:
        click.echo(markdown(rows), nl=False)
