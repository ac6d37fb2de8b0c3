"""Checks of a job or an app against the limits of the caller's roles, beyond the right to run it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from posixpath import normpath

from mesos_gpu.access.decide import Rights, Subject, unix_user_of
from mesos_gpu.access.patterns import any_fits
from mesos_gpu.access.rights import APP_WRITE, JOB_CONTROL, JOB_RUN, SECRET_USE
from mesos_gpu.api.http.answers import Refusal, invalid
from mesos_gpu.api.http.rights import require
from mesos_gpu.model.access.document import EVERYTHING, Limits
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.mount import named_of
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.wire.checking import Problem


def problems(rights: Rights, spec: JobSpec, subject: Subject) -> list[Problem]:
    """Return what the caller's roles do not allow in a job. `subject`: the job, or the app whose instance it is."""
    if rights.is_open:
        return []
    limits = _limits(rights, subject)
    faults = [
        *_user_faults(rights, spec, limits),
        *_image_faults(spec, limits),
        *_mount_faults(spec, limits),
        *_priority_faults(spec, limits),
        *_secret_faults(rights, spec, subject),
    ]
    if spec.control_access and not rights.may(JOB_CONTROL, subject):
        faults.append(Problem("/control_access", rights.missing(JOB_CONTROL, subject)))
    return faults


def _limits(rights: Rights, subject: Subject) -> Limits:
    return rights.limits(APP_WRITE if subject.app else JOB_RUN, subject)


def _user_faults(rights: Rights, spec: JobSpec, limits: Limits) -> Iterable[Problem]:
    own = unix_user_of(rights.document, rights.caller.name)
    if spec.user is not None and spec.user != own and not any_fits(limits.users, spec.user):
        allowed = ", ".join(dict.fromkeys([*([own] if own else []), *limits.users])) or "none"
        yield Problem("/user", f"{rights.caller.name} may not run as {spec.user}; allowed: {allowed}")


def _image_faults(spec: JobSpec, limits: Limits) -> Iterable[Problem]:
    if spec.image and not any_fits(limits.images, spec.image):
        yield Problem("/image", f"{spec.image} is not allowed; allowed: {_shown(limits.images)}")


def _mount_faults(spec: JobSpec, limits: Limits) -> Iterable[Problem]:
    for index, mount in enumerate(spec.mounts):
        if mount.source.startswith("/") and not _is_below(mount.source, limits.volumes):
            allowed = _shown(limits.volumes)
            yield Problem(
                f"/volumes/{index}", f"{mount.source} of the host is not allowed; allowed: {allowed}"
            )


def _is_below(path: str, roots: Sequence[str]) -> bool:
    path = normpath(path).replace("//", "/")
    return any(
        root == EVERYTHING or path == root.rstrip("/") or path.startswith(f"{root.rstrip('/')}/")
        for root in roots
    )


def _priority_faults(spec: JobSpec, limits: Limits) -> Iterable[Problem]:
    priority = spec.priority or 0
    if priority > limits.highest_priority:
        yield Problem("/priority", f"{priority} is above {limits.highest_priority}, the highest allowed one")
    if limits.must_be_preemptible and not spec.preemptible:
        yield Problem("/preemptible", "must be true: jobs of these roles may be ended for others")


def _secret_faults(rights: Rights, spec: JobSpec, subject: Subject) -> Iterable[Problem]:
    for secret in spec.secrets:
        path = replace(subject, name=secret.source.partition("#")[0])
        if not rights.may(SECRET_USE, path):
            yield Problem(f"/secrets/{secret.name}", rights.missing(SECRET_USE, path))
    if spec.image_secret is not None:
        path = replace(subject, name=spec.image_secret.partition("#")[0])
        if not rights.may(SECRET_USE, path):
            yield Problem("/image_secret", rights.missing(SECRET_USE, path))


def _shown(patterns: Sequence[str]) -> str:
    return ", ".join(patterns) or "none"


def admit(rights: Rights, spec: JobSpec, permits: Permits, *, pooled: bool) -> JobSpec:
    """Check that a caller may run a job; return the job, with the caller's Unix user if it names none.

    Args:
        rights: Rights of the caller.
        spec: The requested job.
        permits: Permits of the operator.
        pooled: Whether a job that names no user gets a separate one on its host.

    Raises:
        Refusal: The right for the queue is missing, or the roles do not allow something in the job (all faults are
            listed), or the caller's Unix user may not run jobs.
    """
    requested, subject = spec, Subject(rights.caller.name, spec.queue)
    require(rights, JOB_RUN, subject)
    refused = problems(rights, spec, subject)
    if spec.user is None and not rights.is_open and not pooled:
        spec, more = with_own_user(rights, spec, subject)
        refused += more
    if refused:
        raise over_limits(rights, refused)
    if pooled and spec.user is None and (named := named_of(spec.mounts)):
        why = (
            f"is needed for the volume {named[0][1].volume}, which belongs to one Unix user: a job that names no user "
            "gets another one at each launch"
        )
        raise invalid(Problem("/user", why))
    if unable := of_own_user(permits, requested, spec):
        raise invalid(*unable)
    return spec


def of_own_user(permits: Permits, asked: JobSpec, spec: JobSpec) -> list[Problem]:
    """Return why the Unix user that was assigned to a job may not run jobs; nothing if the job named its user itself.

    Args:
        permits: Permits of the operator.
        asked: The job as it was requested.
        spec: The job with the user of its owner.
    """
    if asked.user is not None or spec.user is None:
        return []
    why = permits.problem_of_user(spec.user, has_image=spec.image is not None)
    return [Problem("/user", f"the job would run as {spec.user}, as it names no user: {why}")] if why else []


def with_own_user(rights: Rights, spec: JobSpec, subject: Subject) -> tuple[JobSpec, list[Problem]]:
    """Return a job that names no user with the caller's Unix user, and faults.

    Without a Unix user the job is unchanged, and valid only where the roles allow every user.
    """
    own = unix_user_of(rights.document, rights.caller.name)
    if own is not None:
        return replace(spec, user=own), []
    if EVERYTHING in _limits(rights, subject).users:
        return spec, []
    name = rights.caller.name
    what = f"{name} has no Unix user; set the job's user, or have one added below unix_users (mesos-gpu access apply)"
    return spec, [Problem("/user", what)]


def over_limits(rights: Rights, refused: Sequence[Problem]) -> Refusal:
    """Return the refusal (403) of a job that exceeds the caller's roles."""
    what = f"the roles of {rights.caller.name} do not allow this"
    return Refusal(403, "forbidden", what, remedy=rights.who_can_give(), problems=list(refused))
