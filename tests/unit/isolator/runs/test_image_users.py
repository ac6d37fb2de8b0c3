"""Users that an image names."""

import pytest

from isolator.host.not_started import NotStarted
from isolator.runs.own_run import _user_in


@pytest.mark.parametrize("said", ["9" * 5000, "\u0663", "4294967295", "-1", f"1:{'9' * 5000}", "1:\u0663"])
def test_user_of_an_image_that_is_no_number_of_linux_is_refused(said: str) -> None:
    with pytest.raises(NotStarted, match="app:1 names the user") as caught:
        _user_in(said, (), "app:1")
    assert len(str(caught.value)) < 500


def test_user_of_an_image_may_be_numbers() -> None:
    user = _user_in("77:4294967294", (), "app:1")
    assert (user.pw_uid, user.pw_gid) == (77, 4294967294)
