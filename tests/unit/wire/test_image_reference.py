"""References of images: what Docker takes is taken, what it refuses is named."""

import pytest

from mesos_gpu.wire.image import problem, short_name

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("reference", "short"),
    [
        ("ubuntu", "ubuntu"),
        ("ubuntu:22.04", "ubuntu"),
        ("nvidia/cuda:12.2.0-base-ubuntu22.04", "cuda"),
        ("nvcr.io/nvidia/pytorch:24.01-py3", "pytorch"),
        ("registry.example:5000/a/b__c.d-e--f", "b__c.d-e--f"),
        ("localhost/a:b", "a"),
        ("localhost:5000/a", "a"),
        ("[::1]:5000/a:1", "a"),
        ("UPPER/a", "a"),  # a capital makes it a registry
        (f"a/b@{DIGEST}", "b"),
        (f"a/b:1@{DIGEST}", "b"),
        ("a:" + "t" * 128, "a"),
    ],
)
def test_a_good_reference_has_a_short_name(reference: str, short: str) -> None:
    assert problem(reference) is None
    assert short_name(reference) == short


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("", "'' is not a part of a name"),
        ("/x:latest", "it begins with '/'"),
        ("Ubuntu", "'Ubuntu' must be in lower case"),
        ("a/B:1", "'B' must be in lower case"),
        ("a//b", "'' is not a part of a name"),
        ("a/b/", "'' is not a part of a name"),
        ("a..b", "'a..b' is not a part of a name"),
        ("-a", "'-a' is not a part of a name"),
        ("a b", "'a b' is not a part of a name"),
        ("a\n", "is not a part of a name"),
        ("a:", "'' is not a tag"),
        ("a:.x", "'.x' is not a tag"),
        ("a:" + "t" * 129, "is not a tag"),
        ("a@sha256:12", "'sha256:12' is not a digest"),
        ("a@", "'' is not a digest"),
        ("bad_host.example/a", "'bad_host.example' is not a registry"),
        ("host:port/a", "'host:port' is not a registry"),
        ("http://host/a", "'http:' is not a registry"),
        ("a" * 256, "its name has 256 characters"),
    ],
)
def test_a_bad_reference_says_why(reference: str, why: str) -> None:
    assert why in (problem(reference) or "")
