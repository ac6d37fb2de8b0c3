"""Base classes of all errors that users may see, each with a message, a remedy, an exit code and an HTTP status."""

from collections.abc import Sequence


class MesosGpuError(Exception):
    """Error with a message `what` and a `remedy`, which the command line prints and the REST interface sends."""

    exit_code: int = 1
    http_status: int = 500

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy

    def __str__(self) -> str:
        return f"{self.what}\nTo fix: {self.remedy}" if self.remedy else self.what


class Unavailable(MesosGpuError):
    """A required program or service is not running or not installed (EX_UNAVAILABLE)."""

    exit_code, http_status = 69, 503


class NotFound(MesosGpuError):
    """A named object does not exist (EX_NOINPUT)."""

    exit_code, http_status = 66, 404


class Conflict(MesosGpuError):
    """The request conflicts with an existing object, or with one that is in use."""

    exit_code, http_status = 73, 409


class AppLocked(Conflict):
    """A deployment that changes one of the apps is running.

    Args:
        deployments: Ids of these deployments.
    """

    def __init__(self, deployments: tuple[str, ...]) -> None:
        super().__init__(
            "App is locked by one or more deployments",
            remedy="wait for them, undo them with DELETE /v2/deployments/{id} (mesos-gpu deployment stop ID), or "
            "override with force=true",
        )
        self.deployments = deployments


class Damaged(MesosGpuError):
    """Stored data is not as it was written, and is refused instead of guessed (EX_DATAERR)."""

    exit_code, http_status = 65, 500


class TooMuch(MesosGpuError):
    """A limit of the caller is reached (EX_TEMPFAIL)."""

    exit_code, http_status = 75, 429


class NotAccepted(MesosGpuError):
    """The request could never be granted (EX_DATAERR).

    Args:
        faults: Problems, each with the JSON pointer of its field and the reason.
        remedy: Advice to the user.
    """

    exit_code, http_status = 65, 422

    def __init__(self, faults: Sequence[tuple[str, str]], *, remedy: str) -> None:
        super().__init__("; ".join(reason for _, reason in faults), remedy=remedy)
        self.faults = tuple(faults)


class NoRoom(MesosGpuError):
    """Storage cannot be written, so that changes that must be recorded are refused (EX_IOERR)."""

    exit_code, http_status = 74, 507


class BadConfiguration(MesosGpuError):
    """A setting is invalid (EX_CONFIG)."""

    exit_code, http_status = 78, 400
