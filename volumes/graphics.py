"""Driver data for the loaders of EGL and Vulkan, and for OptiX: names, places, content in a volume. Without
side effects.

A description names a library. A distribution may write the host's path there; in a volume it is the name
alone, which a task's loader finds by LD_LIBRARY_PATH.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from volumes.keys import DATA
from volumes.model import DataFile, Entry, Excluded, Group, Link

EGL, PLATFORMS = "glvnd/egl_vendor.d", "egl/egl_external_platform.d"
VULKAN, LAYERS, OPTIX = "vulkan/icd.d", "vulkan/implicit_layer.d", "nvidia"
PLACES: Final = (EGL, PLATFORMS, VULKAN, LAYERS, OPTIX)
_PLACE_OF: Final = (
    (re.compile(r"\d+_nvidia(?:\.[\w-]+)?\.json"), EGL),
    (re.compile(r"\d+_nvidia_(?:wayland2?|gbm|xcb|xlib)(?:\.[\w-]+)?\.json"), PLATFORMS),
    (re.compile(r"nvidia_icd(?:\.[\w-]+)?\.json"), VULKAN),
    (re.compile(r"nvidia_layers(?:\.[\w-]+)?\.json"), LAYERS),
    (re.compile(r"nvoptix\.bin"), OPTIX),
)

#: Names of other descriptions. Variables list them, separated by colons.
_DESCRIPTION: Final = re.compile(r"[A-Za-z0-9_.-]*nvidia[A-Za-z0-9_.-]*\.json")


def place_of(name: str) -> str | None:
    """Return the directory below `share` for a file name; None if the driver has no such data."""
    return next((place for pattern, place in _PLACE_OF if pattern.fullmatch(name)), None)


def belongs(name: str, place: str) -> bool:
    """Return whether a file with this name, in this place of a host, may be of the driver."""
    return place_of(name) == place or (place != OPTIX and _DESCRIPTION.fullmatch(name) is not None)


def planned(
    data: Iterable[DataFile], libraries: Collection[str], excluded: list[Excluded]
) -> Iterator[Entry]:
    """Yield the data files of a volume, the first of each name; append the rest with reasons to `excluded`.

    Args:
        data: Files of the host, in the order of preference.
        libraries: Names of libraries that the volume has.
        excluded: List for files that are not taken.
    """
    taken: dict[str, str] = {}
    for file in data:
        target = f"{DATA}/{file.place}/{file.name}"
        if target in taken:
            excluded.append(Excluded(file.path, f"{taken[target]} is taken instead"))
            continue
        try:
            text = None if file.text is None else _in_volume(file.text, libraries)
        except ValueError as error:
            excluded.append(Excluded(file.path, str(error), warned=True))
            continue
        taken[target] = file.path
        yield Entry(target, file.path, Group.GRAPHICS, text=text)


def links(entries: Iterable[Entry]) -> Iterator[Link]:
    """Yield links to the data from beside the libraries: distributions have OptiX's data there, or below
    /usr/share.
    """
    for entry in entries:
        if entry.target == f"{DATA}/{OPTIX}/nvoptix.bin":
            yield Link("lib64/nvoptix.bin", f"../{entry.target}")


def _in_volume(text: str, libraries: Collection[str]) -> str | None:
    """Return a description with names of libraries in place of paths; None if it has no paths.

    Raises:
        ValueError: The text is not JSON, names no library, or names one that the volume does not have.
    """
    try:
        document = json.loads(text)
        holders = [part for part in _parts(document) if isinstance(part.get("library_path"), str)]
        if not holders:
            raise ValueError("it names no library")
        changed = False
        for part in holders:
            path = part["library_path"]
            part["library_path"] = path.rpartition("/")[2]
            if part["library_path"] not in libraries:
                raise ValueError(f"it names {path}, which is not taken")
            changed |= path != part["library_path"]
        return json.dumps(document, indent=4) + "\n" if changed else None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _parts(document: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a JSON document."""
    todo = [document]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            yield part
            todo += part.values()
        elif isinstance(part, list):
            todo += part
