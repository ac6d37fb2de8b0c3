"""Secrets of apps: what an instance is given, and what of them it cannot be given."""

import pytest

from mesos_gpu.model.apps.app import App, Container, SecretRef, Volume
from mesos_gpu.model.secret import FILE_FORM, MAX_SECRETS, SOURCE_FORM, Secret, unfit
from mesos_gpu.policy.apps.secrets import Use, problems_of, uses_of

SOURCES = {"hf": "/team/hf", "key": "team/key#pem", "bad": "a b"}


def app(env: dict[str, object] | None = None, *files: tuple[str, str | None]) -> App:
    volumes = tuple(Volume(path, None if secret else "/data", secret=secret) for path, secret in files)
    return App("/a", cmd="x", env=env or {}, secrets=SOURCES, container=Container(volumes=volumes))  # type: ignore[arg-type]


def test_secrets_of_an_app_are_variables_and_files() -> None:
    env = {"TOKEN": SecretRef("hf"), "PLAIN": "x", "PEM": SecretRef("key")}
    made = app(env, ("data", None), ("./keys/a", "key"), ("b", "hf"))
    assert uses_of(made) == (
        Use(Secret("TOKEN", "team/hf"), "env.TOKEN"),
        Use(Secret("PEM", "team/key#pem"), "env.PEM"),
        Use(Secret("SECRET_FILE_0", "team/key#pem", "keys/a"), "container.volumes.1.containerPath"),
        Use(Secret("SECRET_FILE_1", "team/hf", "b"), "container.volumes.2.containerPath"),
    )
    assert list(problems_of(made)) == []
    assert uses_of(App("/a", cmd="x", secrets=SOURCES)) == (), "nothing refers to them"


((_, RESERVED),) = unfit([Secret("MESOS_X", "team/hf")])
FORM = "is not a valid name for a variable with a secret, such as HF_TOKEN"


@pytest.mark.parametrize(
    ("env", "files", "problems"),
    [
        ({"A B": SecretRef("hf")}, [], [("env.A B", FORM)]),
        ({"A B": SecretRef("bad")}, [], [("env.A B", FORM)]),
        ({"A": SecretRef("bad")}, [], [("secrets", f"'a b' must be {SOURCE_FORM}")]),
        ({"A": SecretRef("none")}, [], [("secrets", f"'' must be {SOURCE_FORM}")]),
        ({}, [("../x", "hf")], [("container.volumes.0.containerPath", f"of a secret must be {FILE_FORM}")]),
        ({}, [("/x", "hf")], [("container.volumes.0.containerPath", f"of a secret must be {FILE_FORM}")]),
        (
            {"SECRET_FILE_0": "mine"}, [("/x", "hf")],
            [("container.volumes.0.containerPath", f"of a secret must be {FILE_FORM}")],
        ),
        ({}, [("x", "bad")], [("secrets", f"'a b' must be {SOURCE_FORM}")]),
        (
            {"SECRET_FILE_0": "mine"}, [("x", "hf")],
            [
                (
                    "container.volumes.0.containerPath",
                    "SECRET_FILE_0 is a variable of env, too; give that another name",
                )
            ],
        ),
        (
            {"MESOS_X": SecretRef("hf")}, [("x", "hf"), ("x/y", "key")],
            [
                ("env.MESOS_X", RESERVED),
                (
                    "container.volumes.1.containerPath",
                    "its file x/y collides with the file of another secret; choose another path",
                ),
            ],
        ),
    ],
)  # fmt: skip
def test_secret_that_cannot_be_given_is_named_with_its_field(
    env: dict[str, object], files: list[tuple[str, str | None]], problems: list[tuple[str, str]]
) -> None:
    assert list(problems_of(app(env, *files))) == problems


@pytest.mark.parametrize("more", [0, 1])
def test_secrets_of_an_app_are_bounded(more: int) -> None:
    made = app({f"A{n}": SecretRef("hf") for n in range(MAX_SECRETS + more)})
    said = ("secrets", f"are used {MAX_SECRETS + 1} times; a task gets {MAX_SECRETS} at most")
    assert list(problems_of(made)) == [said] * more
