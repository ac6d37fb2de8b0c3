"""The document that a scheduler begins with, where an operator's tools write one."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from mesos_gpu.access.giving import givers
from mesos_gpu.adapters.files.versioned import ACCESS
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.engine.events import AccessChanged
from mesos_gpu.errors import BadConfiguration, MesosGpuError
from mesos_gpu.model.access.document import AccessDocument

OPTION: Final = "--access-file"
logger = logging.getLogger(__name__)


def read_first(path: Path) -> AccessDocument:
    """The document of `--access-file`.

    Raises:
        BadConfiguration: It cannot be read, or says something that cannot be.
    """
    try:
        return ACCESS.read(path.read_text(encoding="utf-8"), str(path)).document
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadConfiguration(
            f"{OPTION} {path}: {why}", remedy="name a file that this user can read"
        ) from error
    except MesosGpuError as error:
        raise BadConfiguration(f"{OPTION}: {error.what}", remedy=error.remedy) from error


def begin_with(first: AccessDocument, scheduler: SchedulerApi, timeout_s: float = 60.0) -> None:
    """Make it version 1 where there is none yet; else say so if it differs: what was applied later is in force.

    Raises:
        MesosGpuError: The scheduler ends.
    """
    latest = scheduler.access
    if latest.version == 0:
        scheduler.request(
            AccessChanged(replace(first, by=OPTION, comment=first.comment or "the first"), 0)
        ).result(timeout_s)
        logger.info("who may do what is as %s says", OPTION)
        if not givers(first):
            logger.warning("by %s only root on this host may change who may do what", OPTION)
    elif _says(first) != _says(latest):
        logger.warning(
            "%s is not what is in force: version %d is, by %s; see mesos-gpu access diff, and apply the file if it "
            "shall be",
            OPTION,
            latest.version,
            latest.by or "anybody",
        )


def _says(document: AccessDocument) -> AccessDocument:
    return replace(document, version=0, at=0.0, by="", comment="")
