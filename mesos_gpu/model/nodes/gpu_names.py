"""Matching of GPU model names as people write them with names as drivers report them; pure functions.

Drivers report one model under several names, such as `A100-SXM4-80GB` and `NVIDIA A100-SXM4-80GB`, and people write
less: `a100`, `A100-80GB`, `rtx4090`. A name matches each model that contains all of its words. All comparisons of names
use this module; placement and accounting use the names of drivers.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_SIZE: Final = re.compile(r"(\d+)g(i?b)?")
_BRANDS: Final = frozenset({"nvidia", "tesla", "geforce", "gpu"})  # drivers before 470 leave the first out
#: Words that denote a different model, so that a name must have them, too.
_VARIANTS: Final = frozenset({"ti", "super", "d", "laptop"})
#: Alternative words in names of drivers, in lower case.
ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "sxm": ("sxm2", "sxm3", "sxm4", "sxm5", "hbm3"),  # `NVIDIA H100 80GB HBM3` is the one for SXM5
    "sxm5": ("hbm3",),
}
_MAX_WORDS: Final = 16  # highest number of compared words of a name
_MAX_SHOWN: Final = 20
_NEAR: Final = 0.8  # lowest similarity, 0 to 1, of a model's words to a mistyped name


def means(name: str, model: str) -> bool:
    """Return whether a name as people write it matches a model name of a driver.

    It matches if the model has all words of the name, in any order and case; words may be joined or divided
    differently, as in rtx4090. The words NVIDIA, Tesla, GeForce and GPU are ignored. A part of a word does not match:
    `A10` does not match an A100, nor `H200` a GH200. A model with Ti, SUPER, D or Laptop is matched only by names with
    that word.
    """
    return name == model or bool(_covered(name, model))


def models_of(names: tuple[str, ...], known: frozenset[str]) -> tuple[str, ...]:
    """Return the models that names match, in the order of the names.

    A name equal to a model name, in any case, matches that model alone. Names that match no model are kept unchanged.

    Args:
        names: Names as people wrote them, the first choice first.
        known: Model names of the existing cards, from their drivers.
    """
    return _models_of(names, known) if names else ()


def unknown(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the names that match none of some models."""
    return [name for name in names if not any(means(name, model) for model in known)]


def most_specific(model: str, names: Iterable[str]) -> str | None:
    """Return the name that matches a model most specifically; None if no name matches.

    The model name itself comes first, then the name with the most words of the model. Among equal ones (`unclear`) the
    first in alphabetical order counts.
    """
    return _most_specific(model, tuple(names))


def specificity(model: str, names: Iterable[str]) -> int:
    """Return the number of words of a model in the most specific matching name; 0 if no name matches."""
    best = most_specific(model, names)
    return 0 if best is None else _weight(best, model)


def unclear(model: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the most specific matching names, sorted, if a model has more than one; else ().

    For `NVIDIA A100-SXM4-80GB`, `A100-80GB` is more specific than `A100`, but not than `A100-SXM4`, nor the reverse.
    """
    able = [name for name in names if means(name, model)]
    best = [name for name in able if not any(_is_more(other, name, model) for other in able if other != name)]
    return tuple(sorted(best)) if len(best) > 1 else ()


def no_such_model(asked: Iterable[str], known: Iterable[str], of: str = "") -> str:
    """Return a message that no node has GPUs of some models, with similar models, or else with all models.

    Args:
        asked: Names that match none of the models.
        known: Models of the nodes' GPUs.
        of: Restriction of the nodes, after "no node", such as " of pool a100"; "" for all nodes.
    """
    names, every = tuple(asked), sorted(set(known))
    near = dict.fromkeys(model for name in names for model in _near(name, every))
    more = f" and {len(every) - _MAX_SHOWN} more" if len(every) > _MAX_SHOWN else ""
    there = f"there are {', '.join(every[:_MAX_SHOWN])}{more}"
    meant = f"did you mean {' or '.join(near)}?" if near else there
    return f"no node{of} has a GPU of model {' or '.join(names)}; {meant}"


def _near(name: str, every: Iterable[str]) -> list[str]:
    """Return at most two models with words similar to a name, the most similar first."""
    wanted = "".join(_significant(name))
    scores = {
        model: max(
            (difflib.SequenceMatcher(None, wanted, run).ratio() for run in _runs(_words(model))), default=0.0
        )
        for model in every
    }
    return sorted((model for model in scores if scores[model] >= _NEAR), key=lambda model: -scores[model])[:2]


def _is_more(name: str, other: str, model: str) -> bool:
    """Return whether a name is more specific for a model than another matching name."""
    if model in (name, other):
        return name == model
    return _covered(name, model) > _covered(other, model)


@lru_cache(maxsize=4096)
def _models_of(names: tuple[str, ...], known: frozenset[str]) -> tuple[str, ...]:
    models: dict[str, None] = {}
    for name in names:
        own = {name} & known or {model for model in known if model.casefold() == name.casefold()}
        meant = own or {model for model in known if means(name, model)}
        models |= dict.fromkeys(sorted(meant) or (name,))
    return tuple(models)


@lru_cache(maxsize=4096)
def _most_specific(model: str, names: tuple[str, ...]) -> str | None:
    if model in names:
        return model
    able = sorted(name for name in names if means(name, model))
    return max(able, key=lambda name: _weight(name, model), default=None)


def _weight(name: str, model: str) -> int:
    return len(_words(model)) + 1 if name == model else len(_covered(name, model))


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    """Split a name into lower-case words, with memory sizes in one form, such as 80gb."""
    words = _WORD.findall(text.casefold())[:_MAX_WORDS]
    return tuple([f"{size[1]}gb" if (size := _SIZE.fullmatch(word)) else word for word in words])


def _significant(name: str) -> tuple[str, ...]:
    """Return the words of a name without brands, or all words if it consists of brands."""
    return tuple(word for word in _words(name) if word not in _BRANDS) or _words(name)


@lru_cache(maxsize=4096)
def _covered(name: str, model: str) -> frozenset[int]:
    """Return the positions of the model's words that a matching name has; an empty set if the name does not match."""
    words, own = _words(model), _significant(name)
    if not own:
        return frozenset()
    runs = _runs(words)
    variants = {place for place, word in enumerate(words) if word in _VARIANTS}
    return next((covered for covered in _covers(own, runs) if variants <= covered), frozenset())


@lru_cache(maxsize=4096)
def _runs(words: tuple[str, ...]) -> dict[str, frozenset[int]]:
    """Return each join of adjacent words of a model, with the positions of these words."""
    return {
        "".join(words[first:last]): frozenset(range(first, last))
        for first in range(len(words))
        for last in range(first + 1, len(words) + 1)
    }


def _covers(own: tuple[str, ...], runs: dict[str, frozenset[int]]) -> Iterator[frozenset[int]]:
    """Yield the positions of a model's words for each way to find all words of a name among them."""
    if not own:
        yield frozenset()
    for last in range(1, len(own) + 1):
        word = "".join(own[:last])
        for alternative in (word, *ALIASES.get(word, ())):
            if (places := runs.get(alternative)) is not None:
                for rest in _covers(own[last:], runs):
                    yield places | rest
