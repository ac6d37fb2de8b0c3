"""Secrets in job requests and options: {NAME: PATH}, {NAME: {source, file}}, NAME=PATH[:FILE]; pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

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

FORM: Final = "NAME=PATH, or NAME=PATH:FILE for a file, as HF_TOKEN=team/hf"
_KNOWN: Final = {"source", "file"}
Problems = list[tuple[str, str]]  # name of the secret, "" for all of them, and reason


def secrets_from_json(value: object, env: Mapping[str, object]) -> tuple[tuple[Secret, ...], Problems]:
    """Parse the secrets of a request; return them, and all problems.

    Args:
        value: Object of secrets by names of environment variables.
        env: Environment variables of the job.
    """
    if not isinstance(value, dict) or len(value) > MAX_SECRETS:
        form = f"an object of at most {MAX_SECRETS} secrets by names of environment variables"
        return (), [("", f"must be {form}, as {{'HF_TOKEN': 'team/hf'}}")]
    secrets: list[Secret] = []
    problems: Problems = []
    for name, use in value.items():
        secret = _secret(name, use)
        if isinstance(secret, str):
            problems.append((str(name), secret))
            continue
        secrets.append(secret)
        if name in env:
            problems.append((name, "is also in env; remove it from one of them"))
    return tuple(secrets), [*problems, *unfit(secrets)]


def _secret(name: object, use: object) -> Secret | str:
    """Parse one secret; return the problem as text. Messages do not quote the input, which may be a secret value."""
    if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
        return "must have the name of an environment variable: letters, digits and '_', as HF_TOKEN"
    given = {"source": use} if isinstance(use, str) else use
    if not isinstance(given, dict) or not set(given) <= _KNOWN:
        return "must be a path in the store of secrets, or an object with source and optionally file"
    source, file = given.get("source"), given.get("file")
    if not isinstance(source, str) or not SOURCE.fullmatch(source):
        return f"must be {SOURCE_FORM}"
    if file is not None and (not isinstance(file, str) or not FILE.fullmatch(file)):
        return f"its file must be {FILE_FORM}"
    return Secret(name, source, file or "")


def secrets_to_json(secrets: Sequence[Secret]) -> dict[str, dict[str, Any]]:
    """Return secrets as in answers of the REST interface."""
    return {secret.name: {"source": secret.source, "file": secret.file or None} for secret in secrets}


def secret_of(text: str) -> tuple[str, dict[str, str | None]] | str:
    """Parse NAME=PATH[:FILE] as an entry of a request; return the problem as text if it is invalid."""
    name, equals, path = text.partition("=")
    source, colon, file = path.partition(":")
    use = {"source": source, "file": file if colon else None}
    secret = _secret(name, use) if equals else f"must be {FORM}"
    if isinstance(secret, str):
        return f"{name}: {secret}" if equals and ENV_NAME.fullmatch(name) else secret
    return name, use
