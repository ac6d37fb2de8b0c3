"""`mesos-gpu app`: apps, and commands that change them."""

import os
from typing import TYPE_CHECKING, Any, ClassVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, yes_option
from mesos_gpu.cli.apps.changing import ChangeOptions, change_command, losses_question
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import APP, VERSION
from mesos_gpu.errors import Conflict, MesosGpuError, NotFound
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.cli.apps.appfile import Wanted
    from mesos_gpu.cli.marathon import Json, Marathon, Preview


class _App(Table):
    table: ClassVar = {
        "list": ("mesos_gpu.cli.apps.listing:list_apps", "List the apps."),
        "show": ("mesos_gpu.cli.apps.listing", "Show all details of an app."),
        "tasks": ("mesos_gpu.cli.apps.listing", "List the tasks of an app and their hosts."),
        "versions": ("mesos_gpu.cli.apps.listing", "List the versions of an app, the latest first."),
        "create": ("mesos_gpu.cli.apps.commands", "Create the apps of a file."),
        "update": ("mesos_gpu.cli.apps.commands", "Change apps from a file, or some fields of one app."),
        "scale": ("mesos_gpu.cli.apps.commands", "Change the number of instances of an app."),
        "restart": (
            "mesos_gpu.cli.apps.commands",
            "Restart all instances of apps, following their upgrade strategies.",
        ),
        "rollback": ("mesos_gpu.cli.apps.commands", "Go back to an earlier version of an app."),
        "delete": ("mesos_gpu.cli.apps.commands", "Delete apps and end their tasks."),
    }


@click.group("app", cls=_App)
def app_group() -> None:
    """Apps: services that are kept running.

    An ID is a path such as /shop/db; the first slash may be left out. A change starts a deployment, which continues
    without the command; with --wait the command follows it to its end.
    """


_NAMED = 20  # apps that the question before a deletion names; the rest is counted
_FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)


@click.command()
@click.argument("file", type=_FILE)
@change_command
def create(app: App, manner: ChangeOptions, file: str) -> None:
    """Create the apps of a file.

    FILE is JSON or YAML in Marathon's format; `-` reads stdin. It contains an app, a list of apps, or a group with its
    apps and groups. One deployment creates all of them, or none: if an app exists already or is wrong, every problem is
    reported.

    \b
      mesos-gpu app create web.json --wait
      mesos-gpu template render vllm -s gpus=2 --json | mesos-gpu app create -
    """
    from mesos_gpu.cli.apps.appfile import read_file

    wanted = read_file(file)
    marathon = app.marathon()
    _send_code(marathon, wanted, file)
    with wanted.told():
        if wanted.group is not None:
            answer: Any = marathon.change("POST", "/v2/groups", wanted.group, force=manner.force)
            change = answer
        elif wanted.single:
            answer = marathon.create(wanted.apps[0], force=manner.force)
            change = {"deploymentId": answer["deployments"][0]["id"]} if answer["deployments"] else None
        else:
            _refuse_known(marathon, wanted)
            path, body = wanted.put
            change = answer = marathon.change("PUT", path, body, force=manner.force)
    _report_change(manner, marathon, wanted.names, change, answer)


def _report_change(manner: ChangeOptions, marathon: "Marathon", names: str, change: Any, answer: Any) -> None:
    from mesos_gpu.cli.apps.diff import tell_warnings

    if manner.as_json:
        output.document(answer)
    tell_warnings(answer.get("warnings", ()))
    manner.tell(marathon, names, change)


def _send_code(marathon: "Marathon", wanted: "Wanted", file: str) -> None:
    from mesos_gpu.cli.code.send import upload

    wanted.with_code(lambda directory: upload(marathon.client, directory), file)


def _refuse_known(marathon: "Marathon", wanted: "Wanted") -> None:
    existing = {app["id"] for app in marathon.apps()} & set(wanted.ids)
    if existing:
        raise Conflict(
            f"these apps exist already: {', '.join(sorted(existing))}; nothing was created",
            remedy="change them with `mesos-gpu app update`, or remove them from the file",
        )


@click.command()
@click.argument("target", metavar="FILE|ID")
@click.argument("assignments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--unset", "unset", multiple=True, metavar="KEY",
              help="Remove a field or a part of one, such as env.LANG; may be repeated.")  # fmt: skip
@click.option("--replace", is_flag=True, help="With FILE: reset fields that are not in it to their defaults.")
@yes_option
@change_command
def update(
    app: App,
    manner: ChangeOptions,
    target: str,
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    replace: bool,
    yes: bool,
) -> None:
    """Change apps from a file, or some fields of one app.

    FILE is as for `create`, with apps that exist; `mesos-gpu diff FILE` shows beforehand what it would change. Fields
    that are not in the file stay, unless --replace is given. A group gets exactly the apps in the file. On a terminal
    it asks before apps are deleted or get fewer instances.

    With an ID, KEY is a field of Marathon's app; dots lead to inner fields, and a number is the index in a list:

    \b
      mesos-gpu app update /shop/web instances=3 env.LANG=C
      mesos-gpu app update /shop/web container.docker.image=web:2 healthChecks.0.path=/up
      mesos-gpu app update /shop/web --unset labels.canary 'constraints=[["hostname","UNIQUE"]]'
    """
    marathon = app.marathon()
    if assignments or unset:
        if replace:
            raise click.UsageError("--replace needs a FILE: KEY=VALUE changes only that field")
        _update_fields(marathon, manner, APP.convert(target, None, None), assignments, unset, yes=yes)
        return
    if target != "-" and not os.path.exists(target):
        raise click.UsageError(
            f"{target[:80]!r} is not a file; to change an app with that ID, add KEY=VALUE, for example instances=3"
        )
    _update_file(marathon, manner, target, replace=replace, yes=yes)


def _update_fields(
    marathon: "Marathon",
    manner: ChangeOptions,
    id: str,
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    *,
    yes: bool,
) -> None:
    """Change single fields of an app: with PATCH, or with PUT of the whole app if a field becomes null."""
    from mesos_gpu.cli.apps.appfile import definition
    from mesos_gpu.wire.marathon.assign import WrongAssignment, assigned, assignment_of, path_of, without

    pairs = [text.partition("=") for text in assignments]
    if bad := [key for key, equals, _ in pairs if not equals or not key]:
        raise click.UsageError(f"{bad[0]!r} is not KEY=VALUE, for example instances=3")
    try:
        wanted = [assignment_of(key, value) for key, _, value in pairs]
        removed = [path_of(key) for key in unset]
        now = definition(marathon.app(id))
        patch = assigned(now, wanted)
        for path in removed:
            patch |= without({**now, **patch}, path)
    except WrongAssignment as err:
        raise click.UsageError(str(err)) from err
    url = f"/v2/apps{id}"
    if None in patch.values():  # a PATCH ignores null values, so send the whole app
        whole = {**now, **patch}
        change = _change(marathon, "PUT", url, whole, manner, yes=yes, partialUpdate=False)
    else:
        change = _change(marathon, "PATCH", url, patch, manner, yes=yes)
    _report_change(manner, marathon, id, change, change)


def _change(
    marathon: "Marathon",
    verb: str,
    path: str,
    body: object,
    manner: ChangeOptions,
    *,
    yes: bool,
    **flags: bool,
) -> Any:
    """Make a change, after a question if it deletes apps or ends instances."""
    output.ask(lambda: losses_question(marathon.preview(verb, path, body, **flags)), yes=yes)
    return marathon.change(verb, path, body, force=manner.force, **flags)


def _update_file(marathon: "Marathon", manner: ChangeOptions, file: str, *, replace: bool, yes: bool) -> None:
    """Change the apps of a file, after checking that all of them exist."""
    from mesos_gpu.cli.apps.appfile import read_file

    wanted = read_file(file)
    _send_code(marathon, wanted, file)
    path, body = wanted.put
    flags = {"partialUpdate": False} if replace and wanted.group is None else {}
    if wanted.group is not None and not marathon.has_group(wanted.group_id):
        raise _missing([wanted.group_id])
    with wanted.told():
        if wanted.group is None:
            preview: Preview = marathon.preview("PUT", path, body, **flags)
            if new := [difference["id"] for difference in preview["changes"] if difference["before"] is None]:
                raise _missing(new)
        change = _change(marathon, "PUT", path, body, manner, yes=yes, **flags)
    _report_change(manner, marathon, wanted.names, change, change)


def _missing(ids: list[str]) -> NotFound:
    return NotFound(
        f"not found: {', '.join(ids)}; nothing was changed", remedy="create them with `mesos-gpu app create`"
    )


class _Instances(click.ParamType[tuple[str, int]]):
    """N, +N or -N."""

    name = "n"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        sign, digits = (value[0], value[1:]) if value[:1] in ("+", "-") else ("", value)
        if not (digits.isascii() and digits.isdecimal()):
            self.fail(
                f"{value!r} is not a number of instances, such as 3, or a change of it, such as +1 or -1",
                param,
                ctx,
            )
        return sign, int(digits)


@click.command(context_settings={"ignore_unknown_options": True})  # accepts -1 as an argument
@click.argument("app_id", metavar="ID", type=APP)
@click.argument("instances", metavar="N|+N|-N", type=_Instances())
@yes_option
@change_command
def scale(app: App, manner: ChangeOptions, app_id: str, instances: tuple[str, int], yes: bool) -> None:
    """Change the number of instances of an app.

    N is the new number; +N and -N change the current one. On a terminal it asks before instances end.

    \b
      mesos-gpu app scale /shop/web 5
      mesos-gpu app scale /shop/web +1 --wait
    """
    marathon = app.marathon()
    sign, count = instances
    if sign:
        now = marathon.app(app_id)["instances"]
        if sign == "-" and count > now:
            raise Conflict(
                f"{app_id} has only {now} instances, fewer than {count}",
                remedy=f"to end all of them: mesos-gpu app scale {app_id} 0",
            )
        count = now + count if sign == "+" else now - count
    change = _change(marathon, "PATCH", f"/v2/apps{app_id}", {"instances": count}, manner, yes=yes)
    _report_change(manner, marathon, app_id, change, change)


@click.command()
@click.argument("app_ids", metavar="ID...", nargs=-1, required=True, type=APP)
@change_command
def restart(app: App, manner: ChangeOptions, app_ids: tuple[str, ...]) -> None:
    """Restart all instances of apps, following their upgrade strategies."""
    marathon = app.marathon()
    _each(
        marathon,
        manner,
        app_ids,
        lambda id: marathon.change("POST", f"/v2/apps{id}/restart", force=manner.force),
    )


@click.command()
@click.argument("app_id", metavar="ID", type=APP)
@click.option(
    "--version",
    type=VERSION,
    metavar="VERSION",
    help="Version to go back to, as listed by `app versions`; default: the previous one.",
)
@yes_option
@change_command
def rollback(app: App, manner: ChangeOptions, app_id: str, version: str | None, yes: bool) -> None:
    """Go back to an earlier version of an app.

    The default is the latest earlier version that differs from the current definition. The result is a new version, so
    the next rollback undoes this one. A deployment in progress is undone by `mesos-gpu deployment stop` instead.
    """
    marathon = app.marathon()
    chosen = version or _before(marathon, app_id)
    change = _change(marathon, "PUT", f"/v2/apps{app_id}", {"version": chosen}, manner, yes=yes)
    if manner.as_json:
        output.document(change)
    else:
        output.line(f"{app_id}: back to version {chosen}")
    manner.tell(marathon, app_id, change)


def _before(marathon: "Marathon", id: str) -> str:
    current = marathon.app(id)["version"]
    now = {**marathon.version(id, current), "version": None}
    for version in marathon.versions(id):  # newest first; versions compare as text
        if version < current and {**marathon.version(id, version), "version": None} != now:
            return version
    raise NotFound(
        f"{id} has no earlier version that differs from the current one",
        remedy="see `mesos-gpu app versions`",
    )


@click.command()
@click.argument("app_ids", metavar="ID...", nargs=-1, required=True, type=APP)
@click.option("-r", "--recursive", is_flag=True, help="The IDs are groups: delete all apps below them.")
@yes_option
@change_command
def delete(app: App, manner: ChangeOptions, app_ids: tuple[str, ...], recursive: bool, yes: bool) -> None:
    """Delete apps and end their tasks.

    On a terminal it asks first. If one ID is refused, the others are deleted all the same.
    """
    marathon = app.marathon()

    def gone(id: str) -> "Json":
        kind = "groups" if recursive else "apps"
        try:
            return dict(marathon.change("DELETE", f"/v2/{kind}{id}", force=manner.force))
        except MesosGpuError as err:
            if not recursive and err.exit_code == NotFound.exit_code and marathon.has_group(id):
                raise NotFound(
                    f"{id} is a group, not an app",
                    remedy=f"delete all apps below it with: mesos-gpu app delete -r {id}",
                ) from err
            raise

    output.ask(lambda: _deletion(marathon, app_ids, recursive=recursive), yes=yes)
    _each(marathon, manner, app_ids, gone)


def _deletion(marathon: "Marathon", ids: tuple[str, ...], *, recursive: bool) -> str:
    """Return a question whether apps may be deleted, naming all apps below groups."""
    apps = [app["id"] for id in ids for app in marathon.apps(id)] if recursive else list(ids)
    named = ", ".join(apps[:_NAMED]) + (f" and {len(apps) - _NAMED} more" if len(apps) > _NAMED else "")
    return f"Delete {counted(len(apps), 'app')}: {named}?" if apps else f"Delete {', '.join(ids)}?"


def _each(marathon: "Marathon", manner: ChangeOptions, ids: tuple[str, ...], change: Any) -> None:
    """Change all apps, then wait for all; errors are reported at the end and do not stop the others."""
    answers: dict[str, Any] = {}
    failures: list[MesosGpuError] = []
    for id in dict.fromkeys(ids):
        try:
            answers[id] = change(id)
        except MesosGpuError as err:
            failures.append(err)
            if err.exit_code == 69:
                break  # the scheduler cannot be reached for the others either
    if manner.as_json:
        output.document([{"id": id, **answer} for id, answer in answers.items()])
    for id, answer in answers.items():
        try:
            manner.tell(marathon, id, answer)
        except MesosGpuError as err:
            failures.append(err)
    for failure in failures[:-1]:
        output.error(failure)
    if failures:
        raise failures[-1]
