"""Examples of properties that are the same whatever else is tested."""

from collections.abc import Iterator

import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.property.examples import RANDOM


@pytest.fixture(scope="session", autouse=True)
def same_examples() -> Iterator[None]:
    """Keep constants of the loaded modules out of examples, which would change with each change of the product and
    with the tests that run before; where examples are drawn at random, they are welcome."""
    with pytest.MonkeyPatch.context() as patch:
        if not RANDOM:
            patch.setattr(providers, "_get_local_constants", Constants)
            providers.CONSTANTS_CACHE.cache.clear()
        yield
        providers.CONSTANTS_CACHE.cache.clear()
