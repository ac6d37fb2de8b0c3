"""Values that break programs, and documents that have them."""

import copy
from typing import Any, Final

from hypothesis import strategies as st

from tests.spoiling import spoilt

#: What JSON can say and Python, SQLite, a terminal or a float cannot take.
VALUES: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [
        None, True, -1, 0, 2**53, 2**63, 10**30, 10**320, -(10**400), 1.5, 1e308, float("nan"), float("inf"),
        "", "x" * 5000, "\ud800", "\udcff", "a\0b", "\x1b[31m", "a\nb", "\u202e", "-1", "9" * 5000, [], {}, [[]],
        [None], {"": ""}, {"\ud800": 1}, [{}],
    ]
).map(copy.deepcopy)  # fmt: skip
KEYS: Final = st.sampled_from(["", "value", "type", "\ud800", "__class__", "version"])
#: Bytes in place of a document.
BYTES: Final[st.SearchStrategy[bytes]] = st.sampled_from(
    [
        b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'"\\ud800"', b"NaN", b"[1e999]", b"-", b"1" * 5000,
        b"[" * 200_000, b'{"a":' * 200_000, b'{"a":1,"a":2}', b"\x00", b"\xef\xbb\xbf{}",
    ]
) | st.binary(max_size=40)  # fmt: skip


def hostile(*documents: Any) -> st.SearchStrategy[Any]:
    """Documents of these shapes with something wrong in them, or something else."""
    return spoilt(documents, KEYS, VALUES) | VALUES
