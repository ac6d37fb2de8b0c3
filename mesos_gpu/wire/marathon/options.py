"""The GPU options of an app: its object `gpu`, and labels for clients that send no fields they do not know. Pure."""

from typing import Any, Final

from mesos_gpu.model.apps.app import GPU_SHARE, App, GpuOptions
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.shares.units import WHOLE, milli_of, number_of
from mesos_gpu.wire.checking import show
from mesos_gpu.wire.marathon.gpu import GPU, LevelKind
from mesos_gpu.wire.marathon.kinds import Choice, Field, Flag, ListOf, Number
from mesos_gpu.wire.marathon.problems import Report
from mesos_gpu.wire.shares import OF_SHARES

PREFIX: Final = "MESOS_GPU_"  # then the option's name: MESOS_GPU_MEMORY_MIB=40000
_FLAGS: Final = {"true": True, "false": False}


def gpu_options(app: App) -> GpuOptions:
    """What holds for an app that was checked: the object, and for what it leaves at its default the labels."""
    if not any(label.startswith(PREFIX) for label in app.labels):
        return app.gpu or GpuOptions()  # as of nearly all, and it is asked several times a second
    said = _by_label(app, Report())
    given, plain = app.gpu or GpuOptions(), GpuOptions()
    by_object = {
        field.name: getattr(given, field.name)
        for field in GPU.fields
        if getattr(given, field.name) != getattr(plain, field.name)
    }
    return GpuOptions(**{**said, **by_object})


def asked_of(app: App) -> JobSpec:
    """What an app asks for of GPUs, as a job has it; nothing else is set."""
    options = gpu_options(app)
    asked = {field.name: getattr(options, field.of_app) for field in OF_SHARES.values() if field.of_app}
    return JobSpec("", gpus=app.gpus, gpu_milli=app.part_milli, gpu_model=options.models, **asked)


def report_labels(app: App, report: Report) -> None:
    """Report labels that are meant for GPUs and say nothing that can be asked for."""
    _by_label(app, report)
    text = app.labels.get(GPU_SHARE)
    if text is None:
        return
    if milli_of(text) is None:
        form = "must be a part of one GPU in thousandths, as 0.25"
        report.wrong(f"{form}, got {show(text)}", "labels", GPU_SHARE)
    elif app.gpus != 1 or app.gpu_milli not in (WHOLE, milli_of(text)):
        asked = number_of(app.asked_milli)
        report.wrong(f"is for an app with gpus of 1, got {asked}: set that", "labels", GPU_SHARE)


def _by_label(app: App, report: Report) -> dict[str, Any]:
    fields = {PREFIX + field.name.upper(): field for field in GPU.fields}
    options = {}
    for label, text in app.labels.items():
        if not label.startswith(PREFIX):
            continue
        field = fields.get(label)
        if field is None:
            report.wrong(f"unknown label; known are {', '.join(fields)}", "labels", label)
            continue
        with report.at("labels", label):
            item = _read(field, text, report)
        if item is not None:
            options[field.name] = item
    return options


def _read(field: Field, text: str, report: Report) -> Any:
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
    own = Report()  # a label is text: none of its faults is one of JSON's types
    item = field.kind.read(value, own)
    if own.problems() is None:
        return item
    choices = (
        f", but one of {', '.join(each.value for each in field.kind.of)}"
        if isinstance(field.kind, Choice)
        else ""
    )
    report.wrong(f"{show(text)} is no {field.key}{choices}")
    return None
