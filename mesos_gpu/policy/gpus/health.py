"""Health of a card as a state machine over its readings. Pure.

        soft fault            N of them
    ok ───────────► suspect ────────────► sick or lost ◄── any hard fault, from every state, at once
     ▲                │  ▲                     │
     └────────────────┘  └─────────────────────┘
      M clean readings     no fault for `recheck_s`, and no latch

Source of the XIDs' meaning: NVIDIA's XID catalogue; of the rest: NVIDIA's NVML API reference.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Transition
from mesos_gpu.model.nodes.health import CardHealth, Reading, Survey
from mesos_gpu.policy.queueing.backoff import delay_s

HISTORY: Final = 10
NOTES: Final = 8
RESETS: Final = 16
_LAST_MINOR: Final = (1 << 20) - 1


class Tier(Enum):
    """Severity of a fault, and the reaction to it."""

    APPLICATION = "application"  # a warning: caused by the program, or harmless
    SOFT = "soft"  # seen once, the card is suspect; seen repeatedly, it is sick
    RESET = "reset"  # out of use until it stays without a fault
    REPLACE = "replace"  # out of use until an operator resets it
    LOST = "lost"  # not on the bus any more


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a card with its description."""

    tier: Tier
    text: str


def _table(tiers: Mapping[Tier, str]) -> dict[int, Tier]:
    """Convert ranges of XIDs such as "1 3-5" to a table."""
    tiers_by_xid = {}
    for tier, words in tiers.items():
        for word in words.split():
            first, _, last = word.partition("-")
            tiers_by_xid.update(dict.fromkeys(range(int(first), int(last or first) + 1), tier))
    return tiers_by_xid


#: The catalogue's actions "ignore" and "restart application" are APPLICATION, "restart machine" (79) is LOST.
#: 45 follows another XID; 78 and 151 are software; 154 only reports a new recovery action, which is read anyway.
#: 48, 74, 142 and 144-150 depend on more than the number: the card is out of use until quiet. 54: no power cable.
XIDS: Final = _table(
    {
        Tier.APPLICATION: "8 11 13 25 31-32 37-41 43-45 60 63 66-72 75-78 80 82-86 88-89 92-94 96-107 121 126-135"
        " 137 139 141 151-154 157 160-161",
        Tier.RESET: "46 48 62 64 74 95 109-110 119-120 136 140 142-150 155-156 158",
        Tier.REPLACE: "54",
        Tier.LOST: "79",
    }
)

#: NVML_GPU_RECOVERY_ACTION_*; each keeps a card out of use for as long as the driver requests it.
_ACTIONS: Final = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "a drain of its peers",
    4: "a drain and a reset",
    5: "a recovery of the IMEX domain",
    6: "a reset of the bus",
    7: "a reboot of the system",
}
#: nvmlClocksEventReason*: only those of the hardware.
_SLOWDOWNS: Final = {
    0x8: "slowed down by the hardware",
    0x40: "slowed down by heat",
    0x80: "slowed down by the power brake",
}


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Thresholds and delays for judging the health of cards.

    Attributes:
        recheck_s: Seconds without a fault before a sick card becomes suspect; doubled with each relapse.
        recheck_most_s: Upper limit of that time.
        peace_s: Seconds from one time that a card becomes sick to the next, above which the doubling starts again.
        bad_readings: Soft faults that make a card sick (N); they add up until the card is ok again.
        clean_readings: Successive clean readings that make a suspect card ok (M).
        note_s: Seconds for which a warning about an event stays.
        xids: Severities by XID that override the table.
    """

    recheck_s: float = 60.0
    recheck_most_s: float = 3600.0
    peace_s: float = 6 * 3600.0
    bad_readings: int = 3
    clean_readings: int = 3
    note_s: float = 3600.0
    xids: Mapping[int, Tier] = field(default_factory=dict)


def tiers_from(text: str) -> dict[int, Tier]:
    """Parse overrides of severities, as `13=application,109=replace`.

    Raises:
        BadConfiguration: The text has another form; the message names the wrong part.
    """
    tiers_by_xid = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"(\d{1,9})\s*=\s*(application|reset|replace|lost)", part)
        if not match:
            raise BadConfiguration(
                f"MESOS_GPU_XIDS has {part!r}",
                remedy="write XID=application, reset, replace or lost, by commas: 13=application,109=replace",
            )
        tiers_by_xid[int(match[1])] = Tier(match[2])
    return tiers_by_xid


def unread(gpu: Gpu) -> CardHealth:
    """Return the record of a card that was never read: its first reading decides, without hysteresis."""
    return CardHealth(replace(gpu, health=Health.UNKNOWN, reason="", since=0.0, warnings=(), history=()))


def doubted(gpu: Gpu, why: str, now: float) -> CardHealth:
    """Return the record of a card whose past was lost: it is suspect until it proves to be healthy."""
    return _shown(replace(unread(gpu), state=Health.SUSPECT, why=why), Health.SUSPECT, why, now)


def advance(
    record: CardHealth, reading: Reading | None, now: float, settings: HealthSettings, *, stranger: str = ""
) -> CardHealth:
    """Return the record of a card after one more survey.

    Args:
        record: Record before the survey.
        reading: Reading of the card; None if a successful survey did not find it.
        now: Seconds since the epoch.
        settings: Thresholds and delays.
        stranger: Description of a process on the card without a claim; "" without one.
    """
    if reading is not None and reading.misdescribed:
        return unknown(record, reading.misdescribed, now)
    present = faults(reading, settings, record.uncorrectable_ecc)
    record = _moved(record, [f for f in present if f.tier is not Tier.APPLICATION], now, settings)
    if reading is not None:
        record = _with_facts(record, reading, present, now, settings)
    if stranger and record.state in (Health.OK, Health.SUSPECT):
        return _shown(record, Health.DIRTY, stranger, now)
    return _shown(record, record.state, record.why, now)


def unknown(record: CardHealth, why: str, now: float) -> CardHealth:
    """Return the record after a failed probe: the card's state is unknown, and it must not be given out."""
    return _shown(record, Health.UNKNOWN, why, now)


def released(record: CardHealth, now: float, settings: HealthSettings) -> CardHealth:
    """Return the record after an operator's reset: without latch and count, to be back after a recheck if clean."""
    return replace(
        record, latched=False, times_sick=min(record.times_sick, 1), recheck_at=now + settings.recheck_s
    )


def noted(record: CardHealth, text: str, now: float) -> CardHealth:
    """Return the record with an entry in its history that changes nothing else."""
    health = record.gpu.health
    history = (*record.gpu.history, Transition(now, health, health, text))[-HISTORY:]
    return replace(record, gpu=replace(record.gpu, history=history))


def faults(
    reading: Reading | None, settings: HealthSettings, ecc_before: int | None = None
) -> tuple[Fault, ...]:
    """Return the faults of a card in a reading.

    Args:
        reading: Reading of the card; None if it is not present any more.
        settings: Thresholds and overrides.
        ecc_before: Count of uncorrectable errors in the reading before; None if unknown.
    """
    if reading is None:
        return (Fault(Tier.LOST, "it is not present any more"),)
    faults_now = [Fault(Tier.LOST, "fallen off the bus")] if reading.lost else []
    if reading.unreadable and not reading.lost:
        faults_now.append(Fault(Tier.SOFT, reading.unreadable))
    if reading.reset_required:
        faults_now.append(Fault(Tier.RESET, reading.reset_required))
    faults_now += [_of_xid(xid, reading, settings) for xid in dict.fromkeys(reading.xids)]
    if reading.recovery_action:
        wish = _ACTIONS.get(reading.recovery_action, f"recovery action {reading.recovery_action}")
        faults_now.append(Fault(Tier.RESET, f"the driver asks for {wish}"))
    if reading.remapped_rows_pending:
        faults_now.append(Fault(Tier.RESET, "memory rows wait for a reset to be remapped"))
    if reading.row_remapping_failed:
        faults_now.append(Fault(Tier.REPLACE, "remapping of memory rows failed"))
    if reading.retired_pages_pending:
        faults_now.append(Fault(Tier.RESET, "memory pages wait for a reset to be retired"))
    return (*faults_now, *_of_ecc(reading, ecc_before))


def _of_xid(xid: int, reading: Reading, settings: HealthSettings) -> Fault:
    """Return the fault of an XID; it is only soft if the driver reports recovery actions and requests none."""
    tier = settings.xids.get(xid) or XIDS.get(xid, Tier.RESET)
    if tier is Tier.RESET and reading.recovery_action == 0 and xid not in settings.xids:
        tier = Tier.SOFT
    return Fault(tier, f"XID {xid}")


def _of_ecc(reading: Reading, before: int | None) -> list[Fault]:
    """Return the fault of new uncorrectable errors; cards that remap rows contain them, so that only the task ends."""
    grown = (
        reading.uncorrectable_ecc is not None and before is not None and reading.uncorrectable_ecc > before
    )
    if not grown:
        return []
    contained = reading.remapped_rows_pending is not None
    return [Fault(Tier.APPLICATION if contained else Tier.RESET, "an uncorrectable memory error")]


def slowdowns(reading: Reading) -> list[str]:
    """Return warnings about slowdowns in a reading; they last as long as the reading has them."""
    return [text for bit, text in _SLOWDOWNS.items() if (reading.clocks_event_reasons or 0) & bit]


def _moved(record: CardHealth, present: Sequence[Fault], now: float, settings: HealthSettings) -> CardHealth:
    """Return the record with the state that follows from the faults present now."""
    tiers = {fault.tier for fault in present}
    text = "; ".join(dict.fromkeys(fault.text for fault in present))
    if tiers - {Tier.SOFT}:
        state = Health.LOST if Tier.LOST in tiers else Health.SICK
        return _broken(record, state, text, now, settings, latch=Tier.REPLACE in tiers)
    if tiers:
        return _soft(record, text, now, settings)
    return _clean(record, now, settings)


def _broken(
    record: CardHealth, state: Health, why: str, now: float, settings: HealthSettings, *, latch: bool = False
) -> CardHealth:
    """Return the record of a card that is out of use; each further fault restarts the wait."""
    if not record.state.broken:
        peace = now - record.sick_at > settings.peace_s
        record = replace(record, times_sick=1 if peace else record.times_sick + 1, sick_at=now)
    return replace(
        record,
        state=state,
        why=why,
        clean=0,
        latched=record.latched or latch,
        recheck_at=now + _wait_s(record, settings),
    )


def _soft(record: CardHealth, why: str, now: float, settings: HealthSettings) -> CardHealth:
    """Return the record after a soft fault: suspect, or sick after several before it is ok again."""
    if record.state.broken:
        return _broken(record, record.state, why, now, settings)
    record = replace(record, bad=record.bad + 1, clean=0)
    if record.bad >= settings.bad_readings:
        return _broken(record, Health.SICK, f"{why} ({record.bad} times)", now, settings)
    return replace(record, state=Health.SUSPECT, why=why)


def _clean(record: CardHealth, now: float, settings: HealthSettings) -> CardHealth:
    """Return the record after a reading without faults."""
    if record.state.broken:
        due = min(record.recheck_at, now + settings.recheck_most_s)  # limited in case the clock was set back
        if record.latched or now < due:
            return replace(record, recheck_at=due)
        # Suspect, and one fault short of sick: the next fault of any kind makes it sick again.
        why = f"no fault for {_wait_s(record, settings):g} s"
        return replace(record, state=Health.SUSPECT, why=why, bad=settings.bad_readings - 1, clean=0)
    record = replace(record, clean=record.clean + 1)
    if record.state is Health.SUSPECT and record.clean < settings.clean_readings:
        return record
    return replace(record, state=Health.OK, why="", bad=0, clean=0)


def _wait_s(record: CardHealth, settings: HealthSettings) -> float:
    """Return the seconds without a fault after which a sick card becomes suspect."""
    return delay_s(record.times_sick, first_s=settings.recheck_s, most_s=settings.recheck_most_s)


def _with_facts(
    record: CardHealth, reading: Reading, present: Iterable[Fault], now: float, settings: HealthSettings
) -> CardHealth:
    """Return the record with the facts of a reading; a card that cannot be read keeps its identity and size."""
    readable = not reading.unreadable and not reading.lost
    old = record.gpu
    events = {f.text: now for f in present if f.tier is Tier.APPLICATION}
    recent = {text: at for at, text in record.notes if now - at < settings.note_s}
    notes = tuple((at, text) for text, at in {**recent, **events}.items())[-NOTES:]
    gpu = reading.gpu if readable else replace(old, index=reading.gpu.index)
    return replace(
        record,
        gpu=replace(
            gpu,
            health=old.health,
            reason=old.reason,
            since=old.since,
            history=old.history,
            warnings=(*slowdowns(reading), *(text for _, text in notes)),
        ),
        notes=notes,
        uncorrectable_ecc=record.uncorrectable_ecc
        if reading.uncorrectable_ecc is None
        else reading.uncorrectable_ecc,
    )


def _shown(record: CardHealth, health: Health, why: str, now: float) -> CardHealth:
    """Return the record with a health to report; a change goes into the history, except a good first reading."""
    gpu = record.gpu
    if health is gpu.health:
        return replace(record, gpu=replace(gpu, reason=why))
    history = gpu.history
    if gpu.since or health is not Health.OK:
        history = (*history, Transition(now, gpu.health, health, why or _back(record, gpu)))[-HISTORY:]
    return replace(record, gpu=replace(gpu, health=health, reason=why, since=now, history=history))


def _back(record: CardHealth, gpu: Gpu) -> str:
    """Return the reason why a card is ok again."""
    return {Health.DIRTY: "no unclaimed process any more", Health.UNKNOWN: "it can be read again"}.get(
        gpu.health, "clean readings"
    )


def inventory_of(survey: Survey, records: Mapping[GpuId, CardHealth], *, isolation: str = "") -> Inventory:
    """Return the inventory that a host reports: all known cards, including those that are not present now.

    Args:
        survey: Latest survey of the host.
        records: Health of all known cards.
        isolation: Way in which GPUs are isolated on the host; "" if not known.
    """
    present = {reading.gpu.id for reading in survey.readings}
    taken = {record.gpu.minor for record in records.values() if record.gpu.id in present}
    gpus = []
    for record in sorted(records.values(), key=lambda r: (r.gpu.minor, r.gpu.id)):
        gpu = record.gpu if record.gpu.id in present else replace(record.gpu, index=None)
        if gpu.id not in present and gpu.minor in taken:
            # A number from an earlier boot that another card has now: use one that no device has.
            gpu = replace(gpu, minor=next(n for n in range(_LAST_MINOR, -1, -1) if n not in taken))
        taken.add(gpu.minor)
        gpus.append(gpu)
    return Inventory(
        tuple(gpus),
        source=survey.source,
        driver_version=survey.driver_version,
        cuda_version=survey.cuda_version,
        isolation=isolation,
    )


def at_first_sight(survey: Survey, now: float) -> Inventory:
    """Return the inventory of a single survey, judged without any history."""
    settings = HealthSettings()
    records = {
        reading.gpu.id: advance(unread(reading.gpu), reading, now, settings) for reading in survey.readings
    }
    return inventory_of(survey, records)
