"""Marathon app templates that are installed with this package."""

from pathlib import Path
from typing import Final

import mesos_gpu
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.wire.marathon.template import Template, template_of

_SUFFIX: Final = ".json"


def directory() -> Path:
    """Return the directory of templates, which is beside the package, in a checkout and in an installation."""
    return Path(mesos_gpu.__file__).parents[1] / "marathon_templates"


def names() -> list[str]:
    """Return the names of all templates, sorted."""
    return sorted(path.stem for path in directory().glob(f"*{_SUFFIX}"))


def load(name: str) -> Template:
    """Return the template with a name.

    Raises:
        NotFound: There is no such template.
        Unavailable: No templates are installed.
        Damaged: The template's file is invalid.
    """
    available = _known()
    if name not in available:
        raise NotFound(f"there is no template {name}", remedy=f"use one of {', '.join(available)}")
    return _read(name)


def load_all() -> list[Template]:
    """Return all templates, by name.

    Raises:
        Unavailable: No templates are installed.
        Damaged: A template's file is invalid.
    """
    return [_read(name) for name in _known()]


def _known() -> list[str]:
    available = names()
    if not available:
        raise Unavailable(f"there are no templates in {directory()}", remedy="reinstall mesos_gpu")
    return available


def _read(name: str) -> Template:
    return template_of(name, (directory() / (name + _SUFFIX)).read_bytes())
