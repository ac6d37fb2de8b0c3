"""Secrets of an app as secrets of an instance's job. Pure.

Marathon's `secrets` names sources; `env` and volumes refer to those names. A volume becomes a file in the sandbox, and
also gets a variable, as each secret of a job has one: SECRET_FILE_0 and so on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from mesos_gpu.model.apps.app import App, SecretRef
from mesos_gpu.model.secret import (
    ENV_NAME,
    FILE,
    FILE_FORM,
    MAX_SECRETS,
    SOURCE,
    SOURCE_FORM,
    Secret,
    unfit,
)

_OF_FILES = "SECRET_FILE_"


@dataclass(frozen=True, slots=True)
class Use:
    """Use of a secret by an app.

    Attributes:
        secret: Secret of the job.
        field: Path of the field in Marathon's JSON, with dots.
        why: Reason why the secret cannot be given; "" if it can.
    """

    secret: Secret
    field: str
    why: str = ""


def uses_of(app: App) -> tuple[Use, ...]:
    """Return the uses of an app's secrets; a secret that nothing refers to has no effect."""
    return tuple(_uses(app))


def image_secret_of(app: App) -> str | None:
    """Return the path of the secret with the login for the app's image (pullConfig); None without one."""
    docker = app.container.docker if app.container is not None else None
    if docker is None or docker.pull_config is None:
        return None
    return _source(app, docker.pull_config.secret)


def problems_of(app: App) -> Iterator[tuple[str, str]]:
    """Yield the secrets that cannot be given to a task: field and reason."""
    uses = uses_of(app)
    login = image_secret_of(app)
    if login is not None and not SOURCE.fullmatch(login):
        yield "secrets", f"{login!r} must be {SOURCE_FORM}"
    yield from ((use.field, use.why) for use in uses if use.why)
    fields = {use.secret.name: use.field for use in uses}
    yield from ((fields[name], why) for name, why in unfit([use.secret for use in uses if not use.why]))
    if len(uses) > MAX_SECRETS:
        yield "secrets", f"are used {len(uses)} times; a task gets {MAX_SECRETS} at most"


def _uses(app: App) -> Iterator[Use]:
    """Yield the uses of secrets in variables, then those in volumes."""
    for name, value in app.env.items():
        if isinstance(value, SecretRef):
            why = (
                ""
                if ENV_NAME.fullmatch(name)
                else "is not a valid name for a variable with a secret, such as HF_TOKEN"
            )
            yield _use(app, Secret(name, _source(app, value.secret)), f"env.{name}", why)
    volumes = app.container.volumes if app.container is not None else ()
    files = [(i, volume) for i, volume in enumerate(volumes) if volume.secret is not None]
    for number, (i, volume) in enumerate(files):
        why = (
            ""
            if FILE.fullmatch(volume.container_path.removeprefix("./"))
            else f"of a secret must be {FILE_FORM}"
        )
        secret = Secret(
            f"{_OF_FILES}{number}",
            _source(app, volume.secret or ""),
            volume.container_path.removeprefix("./"),
        )
        yield _use(app, secret, f"container.volumes.{i}.containerPath", why)


def _use(app: App, secret: Secret, field: str, why: str) -> Use:
    """Return a use of a secret with the first problem that it has."""
    if not why and not SOURCE.fullmatch(secret.source):
        return Use(secret, "secrets", f"{secret.source!r} must be {SOURCE_FORM}")
    if not why and isinstance(app.env.get(secret.name), str):
        why = f"{secret.name} is a variable of env, too; give that another name"
    return Use(secret, field, why)


def _source(app: App, name: str) -> str:
    """Return a secret's path in the store; Marathon's sources may begin with a slash."""
    return app.secrets.get(name, "").removeprefix("/")
