"""Secrets as job requests and people write them: {NAME: PATH}, {NAME: {source, file}}, NAME=PATH[:FILE]. Pure."""

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
Problems = list[tuple[str, str]]  # of each the name, "" for all of them, and why


def secrets_from_json(value: object, env: Mapping[str, object]) -> tuple[tuple[Secret, ...], Problems]:
    """Secrets of a request, and what is wrong with them.

    Args:
        value: An object by the names of variables.
        env: The job's own variables.
    """
    if not isinstance(value, dict) or len(value) > MAX_SECRETS:
        form = f"an object of at most {MAX_SECRETS} secrets by the names of variables"
        return (), [("", f"must be {form}, as {{'HF_TOKEN': 'team/hf'}}")]
    made: list[Secret] = []
    problems: Problems = []
    for name, use in value.items():
        secret = _secret(name, use)
        if isinstance(secret, str):
            problems.append((str(name), secret))
            continue
        made.append(secret)
        if name in env:
            problems.append((name, "is a variable of env, too; leave it out of one of them"))
    return tuple(made), [*problems, *unfit(made)]


def _secret(name: object, use: object) -> Secret | str:
    """A use of a secret; a string says what is wrong. What was sent is not repeated: it may be a value."""
    if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
        return "must have the name of a variable, of letters, digits and '_', as HF_TOKEN"
    given = {"source": use} if isinstance(use, str) else use
    if not isinstance(given, dict) or not set(given) <= _KNOWN:
        return "must be a path in the store, or an object with source, and file if it is to be a file"
    source, file = given.get("source"), given.get("file")
    if not isinstance(source, str) or not SOURCE.fullmatch(source):
        return f"must be {SOURCE_FORM}"
    if file is not None and (not isinstance(file, str) or not FILE.fullmatch(file)):
        return f"its file must be {FILE_FORM}"
    return Secret(name, source, file or "")


def secrets_to_json(secrets: Sequence[Secret]) -> dict[str, dict[str, Any]]:
    """Secrets as answers have them."""
    return {each.name: {"source": each.source, "file": each.file or None} for each in secrets}


def secret_of(text: str) -> tuple[str, dict[str, str | None]] | str:
    """Read NAME=PATH[:FILE] as an entry of a request; a string says what is wrong."""
    name, equals, path = text.partition("=")
    source, colon, file = path.partition(":")
    use = {"source": source, "file": file if colon else None}
    secret = _secret(name, use) if equals else f"must be {FORM}"
    if isinstance(secret, str):
        return f"{name}: {secret}" if equals and ENV_NAME.fullmatch(name) else secret
    return name, use
