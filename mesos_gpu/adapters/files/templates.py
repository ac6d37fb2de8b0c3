"""The templates that are installed with this package."""

from pathlib import Path
from typing import Final

import mesos_gpu
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.wire.marathon.template import Template, template_of

_SUFFIX: Final = ".json"


def directory() -> Path:
    """The directory of templates, beside the package: so it is in a checkout, and so it is installed."""
    return Path(mesos_gpu.__file__).parents[1] / "marathon_templates"


def names() -> list[str]:
    """The names of all templates, sorted."""
    return sorted(path.stem for path in directory().glob(f"*{_SUFFIX}"))


def load(name: str) -> Template:
    """The template of that name.

    Raises:
        NotFound: There is none.
        Unavailable: There are no templates at all.
        Damaged: Its file is not what a template has to be.
    """
    known = _known()
    if name not in known:
        raise NotFound(f"there is no template {name}", remedy=f"take one of {', '.join(known)}")
    return _read(name)


def load_all() -> list[Template]:
    """All of them, by name.

    Raises:
        Unavailable: There are none.
        Damaged: A file is not what a template has to be.
    """
    return [_read(name) for name in _known()]


def _known() -> list[str]:
    known = names()
    if not known:
        raise Unavailable(f"there are no templates in {directory()}", remedy="install mesos_gpu anew")
    return known


def _read(name: str) -> Template:
    return template_of(name, (directory() / (name + _SUFFIX)).read_bytes())
