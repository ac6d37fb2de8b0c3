"""What comes with an import of a module of Python's library, and what of it comes later."""

import datetime
import marshal
import os
import subprocess
import sys

import pytest

from mesos_gpu.install import library

PYTHON = os.path.realpath(sys.executable)


def written(imported: str) -> set[str]:
    """Modules written in Python that an interpreter has after an import."""
    told = "[name for name, m in sys.modules.items() if type(m.__loader__).__name__ == 'SourceFileLoader']"
    code = f"import sys, {imported}\nprint(*{told})"
    done = subprocess.run([PYTHON, "-IS", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "name",
    [
        "json",
        "selectors",
        pytest.param("socket", marks=pytest.mark.long),
        pytest.param("subprocess", marks=pytest.mark.long),
        "heapq",
        "ctypes",
    ],
)
def test_library_packs_the_imports_of_a_module_and_no_more(name: str) -> None:
    packed = set(library.packed([name]))
    assert written(name) - written("sys") <= packed
    assert packed <= written(name) | {"collections.abc"}


def test_a_late_import_is_made_by_the_function_that_needs_it() -> None:
    packed = library.packed(["pathlib"])
    assert not {"urllib", "urllib.parse"} & packed.keys()
    _, file, code = packed["pathlib"]
    module: dict[str, object] = {"__name__": "pathlib", "__file__": file}
    exec(marshal.loads(code), module)
    made = module["PurePosixPath"]
    assert callable(made)
    assert made("/a b/ü").as_uri() == "file:///a%20b/%C3%BC"


def test_library_takes_the_c_version_of_a_module() -> None:
    packed = library.packed(["datetime"])
    assert packed.keys() == {"datetime"}
    module: dict[str, object] = {"__name__": "datetime"}
    exec(marshal.loads(packed["datetime"][2]), module)
    assert {name: module.get(name) for name in datetime.__all__} == {
        name: getattr(datetime, name) for name in datetime.__all__
    }


def test_library_leaves_out_other_modules() -> None:
    assert (
        library.packed(["mesos_gpu.errors", "os.getcwd", "stat.S_ISDIR", "sys", "_socket", "__main__"]) == {}
    )
