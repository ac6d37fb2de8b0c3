"""Names of GPU models: which cards they mean, which of several names says most, and what was meant by others."""

import pytest

from mesos_gpu.model.nodes.gpu_names import means, models_of, most_specific, no_such_model, unclear, unknown

A100, A100_40 = "NVIDIA A100-SXM4-80GB", "A100-SXM4-40GB"
H100, H200, GH200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GH200 480GB"
RTX = "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (A100, A100),
        ("A100", A100),
        ("a100", A100),
        ("NVIDIA A100", A100),
        ("NVIDIA A100", A100_40),
        ("A100-80GB", A100),
        ("a100_80g", A100),
        ("A100 80 GB", A100),
        ("80GB A100", A100),
        ("A100-PCIE", "NVIDIA A100 80GB PCIe"),
        ("A100-SXM", A100),
        ("h100 sxm5", H100),
        ("H100-SXM", H100),
        ("RTX 4090", RTX),
        ("rtx4090", RTX),
        ("GeForce RTX 4090", RTX),
        ("GH200", GH200),
        ("nvidia-tesla-t4", "Tesla T4"),
        ("NVIDIA T4", "Tesla T4"),
        ("rtx 3060 ti", "NVIDIA GeForce RTX 3060 Ti"),
        ("RTX6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("---", "---"),
    ],
)
def test_gpu_name_means_cards_with_all_of_its_words(name: str, model: str) -> None:
    assert means(name, model)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("A10", A100),
        ("A100", "NVIDIA A10"),
        ("100", A100),
        ("A100-40GB", A100),
        ("A100-80GB", A100_40),
        ("H200", GH200),
        ("B200", "NVIDIA GB200"),
        ("T4", "NVIDIA T400"),
        ("T4", "NVIDIA T400 4GB"),
        ("L4", "NVIDIA L40"),
        ("L40", "NVIDIA L40S"),
        ("RTX 3060", "NVIDIA GeForce RTX 3060 Ti"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 D"),
        ("A6000", "Quadro RTX 6000"),
        ("", A100),
        ("---", A100),
    ],
)
def test_gpu_name_means_no_card_that_lacks_one_of_its_words(name: str, model: str) -> None:
    assert not means(name, model)


def test_gpu_names_become_models_in_the_order_of_the_names() -> None:
    known = frozenset({A100, A100_40, H100, H200, GH200})
    assert models_of(("h100", "A100"), known) == (H100, A100_40, A100)
    assert models_of(("A100", "A100-40GB"), known) == (A100_40, A100)
    assert models_of((), known) == ()
    assert models_of(("V100", "H200"), known) == ("V100", H200), "a name that means no card stays"


def test_gpu_name_in_full_means_that_card_alone() -> None:
    nvl = "NVIDIA H200 NVL"
    assert models_of(("nvidia h200",), frozenset({H200, nvl})) == (H200,)
    assert models_of(("H200",), frozenset({H200, nvl})) == (H200, nvl)
    assert models_of(("nvidia h200",), frozenset({nvl})) == (nvl,)


def test_gpu_name_with_more_words_is_more_specific() -> None:
    names = ("A100", "A100-80GB", "H100")
    assert most_specific(A100, names) == "A100-80GB"
    assert most_specific(A100_40, names) == "A100"
    assert most_specific(RTX, names) is None
    assert most_specific(A100, (*names, A100)) == A100
    assert unclear(A100, names) == unclear(RTX, names) == unclear(A100, (*names, A100, "A100-SXM4")) == ()


@pytest.mark.parametrize("names", [("A100-80GB", "A100-SXM4"), ("A100", "NVIDIA A100")])
def test_gpu_names_are_unclear_if_neither_says_more(names: tuple[str, ...]) -> None:
    assert unclear(A100, (*names, "H100")) == names
    assert most_specific(A100, names) in names


def test_unknown_gpu_models_are_named_with_those_that_look_like_them() -> None:
    known = [A100, H100, RTX]
    assert unknown(["A100", "V100", "rtx4090"], known) == ["V100"]
    assert no_such_model(["A1000"], known) == f"no node has a GPU of model A1000; did you mean {A100}?"
    assert no_such_model(["RTX 409"], known) == f"no node has a GPU of model RTX 409; did you mean {RTX}?"
    words = f"no node of pool a has a GPU of model MI300 or Gaudi; there are {A100}, {RTX}, {H100}"
    assert no_such_model(["MI300", "Gaudi"], known, " of pool a") == words
    many = [f"Card {number}" for number in range(30)]
    assert no_such_model(["MI300"], many).endswith("Card 26 and 10 more")
