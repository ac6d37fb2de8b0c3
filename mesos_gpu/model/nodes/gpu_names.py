"""Names of GPU models: whether what people write means a card as its driver names it. Pure.

Drivers name one card in several ways, as `A100-SXM4-80GB` and `NVIDIA A100-SXM4-80GB`, and people write less: `a100`,
`A100-80GB`, `rtx4090`. A name means each card that has all of its words. Every comparison of names goes through this
module; what is placed and charged has the driver's names.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_SIZE: Final = re.compile(r"(\d+)g(i?b)?")
_BRANDS: Final = frozenset({"nvidia", "tesla", "geforce", "gpu"})  # drivers before 470 leave the first out
#: Words that make another card of it, so that a name must have them, too.
_VARIANTS: Final = frozenset({"ti", "super", "d", "laptop"})
#: Words for which drivers have others, all in lower case.
ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "sxm": ("sxm2", "sxm3", "sxm4", "sxm5", "hbm3"),  # `NVIDIA H100 80GB HBM3` is the one for SXM5
    "sxm5": ("hbm3",),
}
_MAX_WORDS: Final = 16  # of a name that are compared
_MAX_SHOWN: Final = 20
_NEAR: Final = 0.8  # how similar a word of a card is to a name that may have meant it, from 0 to 1


def means(name: str, model: str) -> bool:
    """Return whether a name means a card whose driver names it `model`.

    It does if the card has all words of the name, in any order and in any case; words may be joined or divided
    otherwise, as rtx4090. The words NVIDIA, Tesla, GeForce and GPU say nothing. A part of a word is no word: `A10` does
    not mean an A100, nor `H200` a GH200. A card whose name has Ti, SUPER, D or Laptop is meant only by names with that
    word.
    """
    return name == model or bool(_covered(name, model))


def models_of(names: tuple[str, ...], known: frozenset[str]) -> tuple[str, ...]:
    """Return the models that names mean, in the order of the names.

    A name that is a card's in full, in any case, means that card alone. Names that mean no known card stay as they are.

    Args:
        names: Names that were written, the first choice first.
        known: Models of the cards that there are, as their drivers name them.
    """
    return _models_of(names, known) if names else ()


def unknown(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Select the names that mean none of some models."""
    return [name for name in names if not any(means(name, model) for model in known)]


def most_specific(model: str, names: Iterable[str]) -> str | None:
    """Return the name that means a card and says most of it; None if none means it.

    A card's name in full comes first, then the name with the most of its words. Of equal ones (`unclear`) the first in
    the alphabet.
    """
    return _most_specific(model, tuple(names))


def specificity(model: str, names: Iterable[str]) -> int:
    """Return how many words of a card's name the most specific name has; 0 if none means it."""
    best = most_specific(model, names)
    return 0 if best is None else _weight(best, model)


def unclear(model: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of which none is more specific of a card than the others, sorted; () if one is.

    `A100-80GB` says more than `A100` of an `NVIDIA A100-SXM4-80GB`; neither of `A100-80GB` and `A100-SXM4` does.
    """
    able = [name for name in names if means(name, model)]
    best = [name for name in able if not any(_is_more(other, name, model) for other in able if other != name)]
    return tuple(sorted(best)) if len(best) > 1 else ()


def no_such_model(asked: Iterable[str], known: Iterable[str], of: str = "") -> str:
    """Say that no node has GPUs of some models, and which models may have been meant, or else which there are.

    Args:
        asked: Names that mean none of the models.
        known: Models of the nodes' GPUs.
        of: Restriction of the nodes, after "no node", as " of pool a100"; "" for all nodes.
    """
    names, every = tuple(asked), sorted(set(known))
    near = dict.fromkeys(model for name in names for model in _near(name, every))
    more = f" and {len(every) - _MAX_SHOWN} more" if len(every) > _MAX_SHOWN else ""
    there = f"there are {', '.join(every[:_MAX_SHOWN])}{more}"
    meant = f"did you mean {' or '.join(near)}?" if near else there
    return f"no node{of} has a GPU of model {' or '.join(names)}; {meant}"


def _near(name: str, every: Iterable[str]) -> list[str]:
    """Return at most two models with words that are like a name, the most similar first."""
    wanted = "".join(_significant(name))
    scores = {
        model: max(
            (difflib.SequenceMatcher(None, wanted, run).ratio() for run in _runs(_words(model))), default=0.0
        )
        for model in every
    }
    return sorted((model for model in scores if scores[model] >= _NEAR), key=lambda model: -scores[model])[:2]


def _is_more(name: str, other: str, model: str) -> bool:
    """Return whether a name says more of a card than another name that means it."""
    if model in (name, other):
        return name == model
    return _covered(name, model) > _covered(other, model)


@lru_cache(maxsize=4096)
def _models_of(names: tuple[str, ...], known: frozenset[str]) -> tuple[str, ...]:
    made: dict[str, None] = {}
    for name in names:
        own = {name} & known or {model for model in known if model.casefold() == name.casefold()}
        meant = own or {model for model in known if means(name, model)}
        made |= dict.fromkeys(sorted(meant) or (name,))
    return tuple(made)


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
    """Split a name into words in lower case, with sizes in one form, as 80gb."""
    words = _WORD.findall(text.casefold())[:_MAX_WORDS]
    return tuple([f"{size[1]}gb" if (size := _SIZE.fullmatch(word)) else word for word in words])


def _significant(name: str) -> tuple[str, ...]:
    """Return the words of a name without brands; all words if it has nothing but brands."""
    return tuple(word for word in _words(name) if word not in _BRANDS) or _words(name)


@lru_cache(maxsize=4096)
def _covered(name: str, model: str) -> frozenset[int]:
    """Return the places of a card's words that a name has, if it means the card; else an empty set."""
    words, own = _words(model), _significant(name)
    if not own:
        return frozenset()
    runs = _runs(words)
    variants = {place for place, word in enumerate(words) if word in _VARIANTS}
    return next((covered for covered in _covers(own, runs) if variants <= covered), frozenset())


@lru_cache(maxsize=4096)
def _runs(words: tuple[str, ...]) -> dict[str, frozenset[int]]:
    """Return each join of adjacent words of a card, with the places of these words."""
    return {
        "".join(words[first:last]): frozenset(range(first, last))
        for first in range(len(words))
        for last in range(first + 1, len(words) + 1)
    }


def _covers(own: tuple[str, ...], runs: dict[str, frozenset[int]]) -> Iterator[frozenset[int]]:
    """Yield the places of a card's words for each way to find all words of a name among them."""
    if not own:
        yield frozenset()
    for last in range(1, len(own) + 1):
        word = "".join(own[:last])
        for each in (word, *ALIASES.get(word, ())):
            if (places := runs.get(each)) is not None:
                for rest in _covers(own[last:], runs):
                    yield places | rest
