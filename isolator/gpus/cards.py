"""Health of this host's cards: advanced by surveys, kept in a file that outlives the monitor."""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Health, Inventory
from mesos_gpu.model.nodes.health import CardHealth, Survey
from mesos_gpu.policy.gpus import health
from mesos_gpu.policy.gpus.health import HealthSettings
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.mesos.health import record_from_json, record_to_json

logger = logging.getLogger("isolator.monitor")


class Cards:
    """Health records of all cards; times are seconds since the epoch.

    If the file cannot be read, it is moved aside, and each card is first treated as doubtful.

    Args:
        path: File of the records, which are loaded.
        settings: Rules for the health of cards.
    """

    def __init__(self, path: Path, settings: HealthSettings) -> None:
        self._path, self._settings = path, settings
        self._survey = Survey()
        self._records: dict[GpuId, CardHealth] = {}
        self._written = ""
        self._forgotten = ""
        try:
            self._written = path.read_text()
            records = [record_from_json(value) for value in parsed(self._written)["cards"]]
            self._records = {record.gpu.id: record for record in records}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            self._forgotten = f"its history was lost: {path} cannot be read"
            logger.error("%s cannot be read: %r", path, error)
            with contextlib.suppress(OSError):
                path.replace(path.with_name(path.name + ".damaged"))

    def get(self, gpu: GpuId) -> CardHealth | None:
        """Return the record of a card, or None."""
        return self._records.get(gpu)

    def put(self, record: CardHealth) -> None:
        """Replace the record of a card, and save all."""
        self._set({**self._records, record.gpu.id: record})

    def forget(self, gpu: GpuId) -> None:
        """Remove the record of a card that will not come back."""
        self._set({known: record for known, record in self._records.items() if known != gpu})

    def present(self, gpu: GpuId) -> bool:
        """Return whether the latest survey found the card."""
        return any(reading.gpu.id == gpu for reading in self._survey.readings)

    def surveyed(self, survey: Survey, strangers: Mapping[GpuId, str], now: float) -> None:
        """Advance the health of all cards by a survey; if no driver was found, cards that were there count as
        failed.
        """
        if survey.source == "none" and self._records:
            self.failed(survey.note, now)
            return
        self._survey = survey
        readings = {reading.gpu.id: reading for reading in survey.readings}
        records = dict(self._records)
        for gpu, reading in readings.items():
            if gpu not in records and self._forgotten:
                records[gpu] = health.doubted(reading.gpu, self._forgotten, now)
            records.setdefault(gpu, health.unread(reading.gpu))
        if readings:
            self._forgotten = ""
        self._set(
            {
                gpu: health.advance(
                    record, readings.get(gpu), now, self._settings, stranger=strangers.get(gpu, "")
                )
                for gpu, record in records.items()
            }
        )

    def failed(self, why: str, now: float) -> None:
        """Note that the probe failed for all cards."""
        text = f"probe failed: {why}"
        self._set({gpu: health.unknown(record, text, now) for gpu, record in self._records.items()})

    def was_reset(self, gpu: GpuId, request: str, problem: str, now: float) -> None:
        """Note the result of a reset.

        Args:
            problem: Error of the reset; "" if it succeeded.
        """
        record = self._records[gpu]
        if not problem:
            record = health.released(record, now, self._settings)
        self.put(health.noted(record, f"reset {request}: {problem or 'done'}", now))

    def inventory(self, isolation: str) -> Inventory:
        """Return the inventory to report."""
        return health.inventory_of(self._survey, self._records, isolation=isolation)

    def restless(self) -> bool:
        """Return whether a card is not healthy, so that more frequent looks are worthwhile."""
        return any(record.gpu.health is not Health.OK for record in self._records.values())

    def _set(self, records: Mapping[GpuId, CardHealth]) -> None:
        """Replace all records, log changes of health, and save."""
        for gpu, record in records.items():
            before = self._records.get(gpu)
            logged_changes = before.gpu.history if before else ()
            for change in (change for change in record.gpu.history if change not in logged_changes):
                level = logging.INFO if change.new is Health.OK else logging.WARNING
                logger.log(level, "%s: %s -> %s: %s", gpu, change.old.value, change.new.value, change.reason)
        self._records = dict(records)
        self._save()

    def _save(self) -> None:
        """Save the records atomically, and on disk before anything is reported that depends on them."""
        cards = [record_to_json(record) for record in self._records.values()]
        text = json.dumps({"version": 1, "cards": cards}, indent=1)
        if text == self._written:
            return
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(part, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
            self._written = text
        except OSError as error:
            logger.error("%s cannot be written: %s", self._path, error)


def taken_up(record: CardHealth, request: str) -> CardHealth:
    """Return the record with a reset request marked as done, so that a repeated message has no effect."""
    return replace(record, resets=(*record.resets, request)[-health.RESETS :])
