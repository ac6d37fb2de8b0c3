"""The initial access document of `--access-file`, which provisioning tools write."""

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
    """Read the document of `--access-file`.

    Raises:
        BadConfiguration: The file cannot be read or is not a valid document.
    """
    try:
        return ACCESS.read(path.read_text(encoding="utf-8"), str(path)).document
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadConfiguration(
            f"{OPTION} {path}: {why}", remedy="name a file that this user can read"
        ) from error
    except MesosGpuError as error:
        raise BadConfiguration(f"{OPTION}: {error.what}", remedy=error.remedy) from error


def begin_with(first: AccessDocument, scheduler: SchedulerApi, timeout_s: float = 60.0) -> None:
    """Apply the document as version 1 if there is no version yet; otherwise warn if it differs from the current
    version.

    Raises:
        MesosGpuError: The scheduler is shutting down.
    """
    latest = scheduler.access
    if latest.version == 0:
        scheduler.request(
            AccessChanged(replace(first, by=OPTION, comment=first.comment or "first version"), 0)
        ).result(timeout_s)
        logger.info("access rules of %s are in force", OPTION)
        if not givers(first):
            logger.warning("with the rules of %s only root on this host may change access rules", OPTION)
    elif _says(first) != _says(latest):
        logger.warning(
            "%s differs from the access rules in force (version %d by %s): compare with mesos-gpu access diff, and "
            "apply the file if it is meant to replace them",
            OPTION,
            latest.version,
            latest.by or "an unknown user",
        )


def _says(document: AccessDocument) -> AccessDocument:
    return replace(document, version=0, at=0.0, by="", comment="")
