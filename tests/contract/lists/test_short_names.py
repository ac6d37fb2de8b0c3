"""Short forms of names in tables, and widths of their columns."""

from mesos_gpu.cli.fit import (
    Column,
    Fit,
    fitted,
    short_gpus,
    short_hosts,
    short_ids,
    short_names,
    short_paths,
)
from tests.contract.cli.cli_rig import UUIDS


def test_ids_and_hosts_stay_whole_where_the_short_ones_are_not_unique() -> None:
    near = "c5d8ee65-225e-547c-968b-e6d1aeffee4b"
    ids = [f"web.instance-{uuid}._app.1" for uuid in (*UUIDS, near)]
    assert short_ids([*ids, "-"]) == ["web.instance-748f8361", *ids[1:], "-"]
    assert short_ids([ids[0], ids[0]]) == ["web.instance-748f8361"] * 2
    assert short_hosts(["a.x", "b.x", "b.y", "-", "10.0.0.1", "fe80::1"]) == [
        "a", "b.x", "b.y", "-", "10.0.0.1", "fe80::1"
    ]  # fmt: skip
    assert short_hosts(["a.x b.x", "a.x b.x c.x"]) == ["a b", "a +2"]


def test_long_names_end_after_a_start_that_names_no_other() -> None:
    tables = "nightly-export-of-all-tables-07f2c4d4"
    start = "nightly-export-of-all-tab…"
    assert short_names([tables, "(free)", tables]) == [start, "(free)", start]
    near = "nightly-export-of-all-tables-bac88b86"
    assert short_names([tables, near]) == [tables, near]


def test_paths_keep_their_ends_by_which_siblings_differ() -> None:
    speech, streets = "research/vision/students-of-speech", "research/vision/students-of-streets"
    assert short_paths([speech, streets, "research", "-"], 40) == [speech, streets, "research", "-"]
    assert short_paths([speech, streets, "research"], 22) == [
        "…/students-of-speech",
        "…/students-of-streets",
        "research",
    ]
    assert short_paths([speech, "research/nlp"], 12) == ["studen…peech", "research/nlp"]
    assert short_paths(["aa/team", "bb/team", "c/sales-desk"], 6) == ["aa/team", "bb/team", "sal…sk"]


def test_gpus_are_named_by_the_start_that_names_no_other() -> None:
    one, other, near = (f"GPU-{start}-c73e-9aea-5239-e7d583afc8b{i}" for start, i in (
        ("022fbf57", 1), ("122fbf57", 2), ("022fbf57", 3)
    ))  # fmt: skip
    assert short_gpus(f"{one} is full; {one} (and 1 more) is not, {other}: is") == (
        "GPU-022fbf57 is full; GPU-022fbf57 (and 1 more) is not, GPU-122fbf57: is"
    )
    assert short_gpus(f"{one} {near} {other}") == f"{one} {near} GPU-122fbf57"
    assert short_gpus(f"web.instance-{UUIDS[0]} waits") == f"web.instance-{UUIDS[0]} waits"


def test_column_that_may_not_give_way_is_whole_in_any_width() -> None:
    columns = [Column("ID", ["x" * 50]), Column("STATE", ["running"]), Column("COMMAND", ["c" * 30])]
    lacking = fitted(columns, 40, Fit(leave=("COMMAND",)))
    assert [(column.header, column.width) for column in lacking] == [("ID", 50), ("STATE", 7)]


def test_a_wide_character_counts_twice() -> None:
    (column,) = fitted([Column("NAME", ["語" * 10])], 80, Fit())
    assert column.width == 20
