"""GPU options of an app, from its object `gpu`, or from labels for clients that cannot send unknown fields; pure."""

from typing import Any, Final

from mesos_gpu.model.apps.app import GPU_SHARE, App, GpuOptions
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.shares.units import WHOLE, milli_of, number_of
from mesos_gpu.wire.checking import show
from mesos_gpu.wire.marathon.gpu import GPU, LevelKind
from mesos_gpu.wire.marathon.kinds import Choice, Field, Flag, ListOf, Number
from mesos_gpu.wire.marathon.problems import Report
from mesos_gpu.wire.shares import OF_SHARES

PREFIX: Final = "MESOS_GPU_"  # followed by the option's name: MESOS_GPU_MEMORY_MIB=40000
_FLAGS: Final = {"true": True, "false": False}


def gpu_options(app: App) -> GpuOptions:
    """Return the GPU options of a checked app: those of the object, and those of labels where the object has
    defaults."""
    if not any(label.startswith(PREFIX) for label in app.labels):
        return app.gpu or GpuOptions()  # the common case, on a hot path
    by_label = _by_label(app, Report())
    given, plain = app.gpu or GpuOptions(), GpuOptions()
    by_object = {
        field.name: getattr(given, field.name)
        for field in GPU.fields
        if getattr(given, field.name) != getattr(plain, field.name)
    }
    return GpuOptions(**{**by_label, **by_object})


def asked_of(app: App) -> JobSpec:
    """Return the GPU request of an app in the form of a job, in which nothing else is set."""
    options = gpu_options(app)
    asked = {field.name: getattr(options, field.of_app) for field in OF_SHARES.values() if field.of_app}
    return JobSpec("", gpus=app.gpus, gpu_milli=app.part_milli, gpu_model=options.models, **asked)


def report_labels(app: App, report: Report) -> None:
    """Report labels for GPU options that are unknown or have invalid values."""
    _by_label(app, report)
    text = app.labels.get(GPU_SHARE)
    if text is None:
        return
    if milli_of(text) is None:
        form = "must be a fraction of one GPU with at most three decimals, as 0.25"
        report.wrong(f"{form}, got {show(text)}", "labels", GPU_SHARE)
    elif app.gpus != 1 or app.gpu_milli not in (WHOLE, milli_of(text)):
        asked = number_of(app.asked_milli)
        report.wrong(f"is for an app with gpus of 1, got {asked}; set gpus to 1", "labels", GPU_SHARE)


def _by_label(app: App, report: Report) -> dict[str, Any]:
    """Return the GPU options in labels by field name; report invalid ones."""
    fields = {PREFIX + field.name.upper(): field for field in GPU.fields}
    options = {}
    for label, text in app.labels.items():
        if not label.startswith(PREFIX):
            continue
        field = fields.get(label)
        if field is None:
            report.wrong(f"unknown label; known labels are {', '.join(fields)}", "labels", label)
            continue
        with report.at("labels", label):
            item = _read(field, text, report)
        if item is not None:
            options[field.name] = item
    return options


def _read(field: Field, text: str, report: Report) -> Any:
    """Parse the text of a label as value of a GPU option; None, after a report, if it is invalid."""
    value: object = text
    match field.kind:
        case ListOf():
            value = [part.strip() for part in text.split(",")]
        case Flag():
            value = _FLAGS.get(text)
        case LevelKind():
            wish, _, level = text.partition(":")
            value = {wish: level}
        case Number():
            value = int(text) if text.removeprefix("-").isdecimal() and len(text) < 12 else None
    if value is None:
        report.wrong("must be true or false" if isinstance(field.kind, Flag) else "must be an integer")
        return None
    own = Report()  # faults of labels, which are text, are not errors of JSON types
    item = field.kind.read(value, own)
    if own.problems() is None:
        return item
    choices = (
        f"; use one of {', '.join(choice.value for choice in field.kind.of)}"
        if isinstance(field.kind, Choice)
        else ""
    )
    report.wrong(f"{show(text)} is not a valid {field.key}{choices}")
    return None
