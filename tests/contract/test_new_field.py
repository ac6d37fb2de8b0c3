"""A field that is added to `JobSpec`'s declaration, and nowhere else, is a field everywhere."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from mesos_gpu.api.spec import job_fields as spec
from mesos_gpu.cli.jobs import options, show
from mesos_gpu.model.apps.app import PASSED_ON, GpuOptions
from mesos_gpu.model.jobs.fields import Field, entry
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.wire import job_fields
from mesos_gpu.wire.marathon import gpu

ROOT = Path(__file__).parents[2]
_WITH_THE_FIELD = '''
import importlib.util, sys
from pathlib import Path

NAME = "mesos_gpu.model.jobs.job"
NEW = """
    shm_mib: int = asks(
        0,
        Mib(0, 4096),
        about="shared memory",
        option=Option("--shm", "Shared memory in MiB, or with a unit, as 2GiB", "none"),
        shown="shared memory",
        of_app="shm_mib",
        places=True,
    )

"""
found = importlib.util.find_spec(NAME)
source, before = Path(found.origin).read_text(), "    @property\\n    def gpus_in_all("
assert source.count(before) == 1
module = importlib.util.module_from_spec(found)
sys.modules[NAME] = module
exec(compile(source.replace(before, NEW + before), found.origin, "exec"), module.__dict__)
importlib.import_module("mesos_gpu.model.jobs").job = module
'''


#: What is tried in a process in which jobs have `shm_mib`, by name.
_CODES: Final = {
    "accepted": """
from mesos_gpu.api.v1 import views
from tests.sights import ALL_SEEING
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.engine.reading.view import View
from mesos_gpu.wire.jobs import spec_from_mapping

spec = spec_from_mapping({"command": "true", "shm_mib": 64})
assert spec.shm_mib == 64
(problem,) = spec_from_mapping({"command": "true", "shm_mib": 5000})
assert (problem.path, problem.reason) == ("/shm_mib", "must be an integer from 0 to 4096, got 5000")
job = module.Job(JobId("j"), spec, submitted_at=0.0, sequence=1)
assert views.job(View(State(started_at=0.0), Settings.of("e", "m"), 0.0), job, ALL_SEEING)["shm_mib"] == 64
""",
    "saved": """
import json, sqlite3
from mesos_gpu.adapters.sqlite.schema import sum_of
from mesos_gpu.adapters.sqlite.seal import fact, opened, sealed
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.saves import SaveJob

import tempfile
path = Path(tempfile.mkdtemp(dir=sys.argv[1])) / 'state.db'
store = SqliteStore(path)
job = module.Job(JobId("j"), module.JobSpec("j", "true", shm_mib=64), submitted_at=0.0, sequence=1)
store.save([SaveJob(job)])
saved = store.load()
assert saved.jobs == (job,)
state = State.restored(0.0, saved)
assert STATES.decode(STATES.encode(state)).work.jobs == {job.id: job}
store.close()
db = sqlite3.connect(path)
*columns, row = db.execute("SELECT * FROM jobs").fetchone()
body = json.loads(opened("jobs", columns, row))
del body["spec"]["shm_mib"]
db.execute("UPDATE jobs SET body = ?", (sealed("jobs", columns, json.dumps(body).encode()),))
for statement, values in fact("sum", str(sum_of(db))):
    db.execute(statement, values)
db.commit()
db.close()
store = SqliteStore(path)
assert store.load().jobs[0].spec == module.JobSpec("j", "true")
store.close()
""",
    "options": """
from click.testing import CliRunner
from mesos_gpu.cli import main
from tests.doubles.fake_rest import FakeRest

def call(*words):
    return CliRunner().invoke(main, ["--url", rest.url, *words])

with FakeRest() as rest:
    got = call("run", "-d", "--shm", "1GiB", "--", "true")
    assert got.exit_code == 0, got.output
    assert rest.posted == {"argv": ["true"], "shm_mib": 1024}
    rest.fixed["POST /v1/plan/defrag"] = 200, {"feasible": True, "reason": "", "moves": [], "target": None}
    call("plan", "defrag", "--shm", "2g")
    assert rest.posted["shm_mib"] == 2048
    print(call("show", rest.submitted()).output)
    print(call("run", "--help").output, call("submit", "--help").output)
""",
    "openapi": """
from mesos_gpu.api import openapi

schemas = openapi.document()["components"]["schemas"]
told = {"type": ["integer", "null"], "minimum": 0, "maximum": 4096, "description": "shared memory", "default": 0}
for name in ("JobRequest", "PlanRequest"):
    assert schemas[name]["properties"]["shm_mib"] == told, schemas[name]["properties"]["shm_mib"]
assert schemas["Job"]["properties"]["shm_mib"]["type"] == "integer"
assert "shm_mib" in schemas["Job"]["required"]
""",
    "apps": """
from mesos_gpu.model.apps.app import GpuOptions
from mesos_gpu.policy.apps.workload import job_of
from mesos_gpu.wire.marathon.app import app_of, app_to_json
from mesos_gpu.wire.marathon.options import gpu_options

def app(**more):
    return app_of({"id": "/a", "cmd": "true", **more})

assert GpuOptions().shm_mib == 0
for asking in (app(gpu={"shm_mib": 64}), app(labels={"MESOS_GPU_SHM_MIB": "64"})):
    assert job_of(asking, gpu_options(asking), version="v").shm_mib == 64
assert app_to_json(app(gpu={"shm_mib": 64}))["gpu"]["shm_mib"] == 64
refused = str(app(gpu={"shm_mib": 5000}))
assert "/gpu/shm_mib" in refused and "is greater than 4096" in refused, refused
""",
}
_RUNNING: Final = """
import contextlib, io, json, traceback
results = {}
for name, code in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            exec(code, dict(globals()))
            is_good = True
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            is_good = False
    results[name] = is_good, said.getvalue()
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[bool, str]]:
    """Run `_CODES` in one process, which imports most once; return whether each ended well, and its output."""
    done = subprocess.run(
        [sys.executable, "-c", _WITH_THE_FIELD + _RUNNING, str(tmp_path_factory.mktemp("field"))],
        input=json.dumps(_CODES),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", _CODES)
def test_new_field_is_everywhere(results: Mapping[str, tuple[bool, str]], name: str) -> None:
    is_good, said = results[name]
    assert is_good, said


def test_new_field_is_an_option_and_is_shown(results: Mapping[str, tuple[bool, str]]) -> None:
    _, out = results["options"]
    assert "shared memory  1024 MiB\n" in out
    assert "--shm SIZE" in out
    assert "Shared memory in MiB, or with a unit, as 2GiB; default: none." in " ".join(out.split())
    assert "booking, shm_mib)." in " ".join(out.split())


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.key)
def test_field_tables_have_an_entry_for_each_kind(field: Field) -> None:
    tables = [job_fields._READERS, job_fields._WRITERS, spec._REQUESTED, spec._ANSWERED, show._TEXTS]
    tables += [options._TOLD] if field.option else []
    tables += [gpu._KINDS] if field.of_app else []
    for table in tables:
        entry(table, field.kind)  # KeyError: there is none


def test_options_of_apps_have_the_defaults_of_jobs() -> None:
    given = GpuOptions()
    assert {name: getattr(given, name) for name in PASSED_ON} == {
        name: field.default for name, field in PASSED_ON.items()
    }


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("docs/reference/rest.md", [field.key for field in FIELDS]),
        ("docs/reference/marathon.md", list(PASSED_ON)),
    ],
)
def test_fields_are_on_their_pages(page: str, names: list[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in text and f'"{name}"' not in text] == []
