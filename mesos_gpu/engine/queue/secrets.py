"""Readiness of secrets for launches: the engine knows when each was read, but never a value.

Secrets are read for pending jobs a little ahead, so that a launch does not wait for the secret store, and one that
cannot be read delays only its own jobs. Each attempt gets values that were read since the job began to wait; an old
value is read again.
"""

from dataclasses import replace

from mesos_gpu.engine.effects import ForgetSecrets, ReadSecrets
from mesos_gpu.engine.events import SecretsRead
from mesos_gpu.engine.indexes.memory import SecretRead
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.policy.queueing.backoff import delay_s

_NEVER = SecretRead()


def at_hand(turn: Turn, job: Job) -> bool:
    """Return whether all secrets of a job are read; request those that are missing or old, once for all jobs."""
    state = turn.state
    if not (sources := sources_of(state, job.spec)):
        return True
    since = _since(state, job)
    missing = tuple(
        source for source in sources if _is_due(turn, state.work.secrets.get(source, _NEVER), since)
    )
    for source in missing:
        read = state.work.secrets.get(source, _NEVER)
        state.work.secrets[source] = replace(read, asked_at=turn.now, answered=False)
    if missing:
        turn.effects.append(ReadSecrets(missing))
    return all(_holds(state.work.secrets[source], turn.settings, turn.now, since) for source in sources)


def on_read(turn: Turn, event: SecretsRead) -> None:
    """Record which secrets could be read, and why others could not."""
    for source, why in event.problems.items():
        read = turn.state.work.secrets.get(source, _NEVER)
        failures = read.failures + 1 if why else 0
        wait_s = delay_s(
            failures,
            first_s=turn.settings.secret_store.secrets_first_s,
            most_s=turn.settings.secret_store.secrets_most_s,
        )
        turn.state.work.secrets[source] = replace(
            read,
            answered=True,
            read_at=None if why else read.asked_at,
            problem=why,
            failures=failures,
            next_at=turn.now + (wait_s if why else turn.settings.secret_store.secrets_fresh_s),
        )


def on_tick(turn: Turn) -> None:
    """Forget secrets that no pending job needs any more."""
    limit_s = 2 * turn.settings.secret_store.secrets_stale_s
    old = [s for s, known in turn.state.work.secrets.items() if turn.now - known.asked_at > limit_s]
    if not old:
        return
    waiting = (turn.state.work.jobs[job_id] for _, job_id in turn.state.work.queue)
    needed = {source for job in waiting for source in sources_of(turn.state, job.spec)}
    old = [source for source in old if source not in needed]
    for source in old:
        del turn.state.work.secrets[source]
    if old:
        turn.effects.append(ForgetSecrets(tuple(old)))


def problem_of(state: State, settings: Settings, now: float, job: Job) -> str:
    """Return why a job waits for its secrets, in words; "" if it does not wait, or if that is not known yet."""
    since = _since(state, job)
    for source in sources_of(state, job.spec):
        read = state.work.secrets.get(source)
        if read is None or _holds(read, settings, now, since):
            continue
        if not read.problem:
            return f"secret {source} is being read"
        tries = f"tried {read.failures} times" if read.failures > 1 else "tried once"
        named = read.problem if source.partition("#")[0] in read.problem else f"{source}: {read.problem}"
        return f"{named}; {tries}, again in {max(read.next_at - now, 0.0):.0f} s"
    return ""


def sources_of(state: State, spec: JobSpec) -> tuple[str, ...]:
    """Return the paths of all secrets that a job needs, each once: its own, and its queue's login for its image."""
    if spec.image is None and not spec.secrets:
        return ()
    login = state.quota.tree.image_secret_of(spec)
    own = (secret.source for secret in spec.secrets)
    return tuple(dict.fromkeys((*own, login) if login is not None else own))


def _since(state: State, job: Job) -> float:
    """Return since when a job waits; values that were read before may have changed."""
    task = state.work.tasks.get(job.task_id) if job.task_id is not None else None
    return job.submitted_at if task is None else task.ended_at or task.heard_at


def _is_due(turn: Turn, known: SecretRead, since: float) -> bool:
    """Return whether a secret has to be read again."""
    if not known.answered:  # not requested yet, or the answer is lost
        return turn.now - known.asked_at >= turn.settings.secret_store.secrets_answer_s
    return turn.now >= known.next_at or (known.read_at is not None and known.read_at < since)


def _holds(known: SecretRead, settings: Settings, now: float, since: float) -> bool:
    """Return whether the last read of a secret is new enough for a launch."""
    return (
        known.read_at is not None
        and known.read_at >= since
        and now - known.read_at <= settings.secret_store.secrets_stale_s
    )
