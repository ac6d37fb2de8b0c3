"""Write the bill of materials of a host's software, in CycloneDX's JSON: `python -m scripts.sbom FILE`.

It names mesos_gpu, each release that requirements-run.lock and pymesos.lock install on this Python, with the
hashes of its files, its licence and its dependencies, and libmesos, which `mesos-gpu up` downloads.
SOURCE_DATE_EPOCH, in seconds, is its time where it is set: then the same locks give the same bytes.
"""

import os
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from mesos_gpu import __version__
from mesos_gpu.libmesos import fetch
from scripts import locks

_SPACE: Final = uuid.UUID("6c0a5c3e-0f0e-5b6a-9a52-3f6a1a7c9d51")  # namespace of serial numbers


def component(release: locks.Locked) -> Component:
    """Return the component of a lock's release; its licence is the one that the installed distribution
    states.
    """
    version = str(release.version)
    stated = locks.licence(locks.installed(release.name).metadata.json)
    return Component(
        name=release.name,
        version=version,
        purl=PackageURL("pypi", None, release.name, version),
        bom_ref=f"{release.name}=={version}",
        scope=ComponentScope.REQUIRED,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in release.hashes],
        licenses=[] if stated == locks.UNKNOWN else [LicenseFactory().make_from_string(stated)],
    )


def libmesos() -> Component:
    """Return the component for the library of Apache Mesos in the distribution that is downloaded."""
    return Component(
        name="libmesos",
        version="1.11.0",
        bom_ref="libmesos==1.11.0",
        purl=PackageURL("pypi", None, fetch.PROJECT, "1.11.0"),
        description=f"{fetch.EGG}: an embedded cluster's Mesos",
        scope=ComponentScope.OPTIONAL,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=fetch.EGG_SHA256)],
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )


def bill() -> Bom:
    """Return the bill of all components of a host, with their dependencies."""
    bom = Bom()
    root = Component(
        name="mesos_gpu",
        version=__version__,
        type=ComponentType.APPLICATION,
        bom_ref=f"mesos_gpu=={__version__}",
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    bom.metadata.component = root
    bom.metadata.timestamp = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    releases = [each for path in (locks.RUN, locks.DRIVER) for each in locks.read(path) if each.here]
    components = {each.name: component(each) for each in releases}
    extra = libmesos()
    for each in (*components.values(), extra):
        bom.components.add(each)
    for name, each in components.items():
        bom.register_dependency(
            each, [components[other] for other in locks.needs(name) if other in components]
        )
    bom.register_dependency(
        root, [*(components[n] for n in locks.needs("mesos_gpu", ["all"])), components["pymesos"], extra]
    )
    names = "\n".join(
        str(each.bom_ref) for each in sorted((root, *bom.components), key=lambda one: str(one.bom_ref))
    )
    bom.serial_number = uuid.uuid5(_SPACE, names)
    return bom


def main(arguments: Sequence[str]) -> int:
    """Write the bill of materials if it is valid; return the exit status."""
    (target,) = arguments
    text = JsonV1Dot6(bill()).output_as_string(indent=2)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        print(f"the bill of materials is not CycloneDX 1.6: {wrong.data}", file=sys.stderr)
        return 1
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(text + "\n")
    print(f"{target}: CycloneDX 1.6")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
