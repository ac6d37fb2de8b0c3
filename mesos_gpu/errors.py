"""What failed and what mends it: the one base of every error that a person may see."""

from collections.abc import Sequence


class MesosGpuError(Exception):
    """`what` happened, and the `remedy` that mends it."""

    exit_code: int = 1
    http_status: int = 500

    def __init__(self, what: str, *, remedy: str) -> None:
        """Keep both parts: the command line prints them, the REST interface sends them."""
        super().__init__(what)
        self.what, self.remedy = what, remedy

    def __str__(self) -> str:
        return f"{self.what}\nTo fix: {self.remedy}" if self.remedy else self.what


class Unavailable(MesosGpuError):
    """Something that must be running, or installed, is not (EX_UNAVAILABLE)."""

    exit_code, http_status = 69, 503


class NotFound(MesosGpuError):
    """What was named does not exist."""

    exit_code, http_status = 66, 404


class Conflict(MesosGpuError):
    """The request conflicts with what exists already, or with what is in use."""

    exit_code, http_status = 73, 409


class AppLocked(Conflict):
    """A deployment is under way for one of the apps."""

    def __init__(self, deployments: tuple[str, ...]) -> None:
        """`deployments`: their ids."""
        super().__init__(
            "App is locked by one or more deployments",
            remedy="wait for them, undo them with DELETE /v2/deployments/{id} (mesos-gpu deployment stop ID), or "
            "override with force=true",
        )
        self.deployments = deployments


class Damaged(MesosGpuError):
    """Stored data is not what was written: refuse, never guess (EX_DATAERR)."""

    exit_code, http_status = 65, 500


class TooMuch(MesosGpuError):
    """A limit of who asks is reached (EX_TEMPFAIL)."""

    exit_code, http_status = 75, 429


class NotAccepted(MesosGpuError):
    """What is asked for could never be granted (EX_DATAERR)."""

    exit_code, http_status = 65, 422

    def __init__(self, faults: Sequence[tuple[str, str]], *, remedy: str) -> None:
        """`faults`: all that is wrong, each with the JSON pointer of its field."""
        super().__init__("; ".join(reason for _, reason in faults), remedy=remedy)
        self.faults = tuple(faults)


class NoRoom(MesosGpuError):
    """What must be kept cannot be written: nothing that it would follow from is done."""

    exit_code, http_status = 74, 507


class BadConfiguration(MesosGpuError):
    """A setting that cannot work (EX_CONFIG)."""

    exit_code, http_status = 78, 400
