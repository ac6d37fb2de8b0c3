"""`mesos-gpu help` and `completion`: help texts and shell completion scripts."""

import click
from click.shell_completion import get_completion_class


@click.command("help")
@click.argument("words", metavar="[COMMAND...]", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Print what a command does.

    \b
      mesos-gpu help run
      mesos-gpu help gpu drain
    """
    root = ctx.find_root()
    where, command = root, root.command
    for word in words:
        if not isinstance(command, click.Group):
            raise click.UsageError(f"{where.command_path} has no commands below it: leave out {word!r}")
        name, inner, _ = command.resolve_command(where, [word])
        assert inner is not None  # an unknown command raises before
        where = click.Context(inner, info_name=name, parent=where, help_option_names=root.help_option_names)
        command = inner
    click.echo(where.get_help())


@click.command(epilog="\b\nbash: eval \"$(mesos-gpu completion bash)\"    in ~/.bashrc\n"
               "zsh:  eval \"$(mesos-gpu completion zsh)\"     in ~/.zshrc, after compinit\n"
               "fish: mesos-gpu completion fish | source     in ~/.config/fish/config.fish")  # fmt: skip
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, files and states, and asks the running scheduler for IDs of jobs, apps and
    deployments.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "mesos-gpu", "_MESOS_GPU_COMPLETE").source())
