"""`mesos-gpu completion`: the script that teaches a shell this program's words."""

import click
from click.shell_completion import get_completion_class


@click.command(epilog="\b\nbash: eval \"$(mesos-gpu completion bash)\"    in ~/.bashrc\n"
               "zsh:  eval \"$(mesos-gpu completion zsh)\"     in ~/.zshrc, after compinit\n"
               "fish: mesos-gpu completion fish | source     in ~/.config/fish/config.fish")  # fmt: skip
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, files, states and, from the running scheduler, the IDs of jobs, apps and
    deployments.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "mesos-gpu", "_MESOS_GPU_COMPLETE").source())
