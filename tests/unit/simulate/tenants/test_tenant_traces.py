"""Traces of tenants: our columns, Helios', Philly's and Gavel's; and what is wrong with a line."""

import gzip
import json
from pathlib import Path

import pytest

from mesos_gpu.errors import Damaged, NotFound
from mesos_gpu.simulate.tenancy.trace import TenantJob, read_tenants

PHILLY6 = Path(__file__).parents[3] / "data" / "tenants" / "philly6.csv"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_tenant_trace_of_six_virtual_clusters_is_read() -> None:
    trace = read_tenants(PHILLY6)
    assert (len(trace.jobs), trace.users_drawn, len({job.tenant for job in trace.jobs})) == (7800, True, 6)


def test_tenant_trace_users_are_drawn_alike_by_the_same_seed_and_some_are_busier(tmp_path: Path) -> None:
    lines = PHILLY6.read_text().splitlines(keepends=True)
    path = written(tmp_path / "half.csv", "".join((lines[0], *lines[1::2])))
    first, again, other = read_tenants(path, 1), read_tenants(path, 1), read_tenants(path, 2)
    assert first == again
    assert [job.user for job in first.jobs] != [job.user for job in other.jobs]
    mine = [job.user for job in first.jobs if job.tenant == "6214e9"]
    assert mine.count("6214e9-u1") > 3 * mine.count("6214e9-u12") > 0


def test_tenant_trace_optional_columns_are_read(tmp_path: Path) -> None:
    head = "job_id,tenant,num_gpu,submit_time,duration,user,preemptible,timeout\n"
    text = head + "x,a,2,10,5.5,ann,false,60\ny,b,1,4,1,,,\n"
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    trace = read_tenants(path)
    assert trace.jobs == (
        TenantJob("y", "b", 1, 0.0, 1.0),
        TenantJob("x", "a", 2, 6.0, 5.5, "ann", False, 60.0),
    )
    assert not trace.users_drawn


def test_tenant_trace_of_helios_is_read_and_jobs_that_never_ran_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path / "cluster_log.csv",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "7,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:05:00,2020-04-01 00:06:00,60,300\n"
        "8,u2,vcB,0,4,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:05:00,2020-04-01 00:06:00,60,290\n"
        "9,u2,vcB,1,4,1,CANCELLED,2020-04-01 00:00:20,None,None,0,0\n"
        "10,u2,vcB,1,4,1,FAILED,2020-04-01 00:01:00,None,None,30,0\n",
    )
    trace = read_tenants(path)
    assert trace.jobs == (
        TenantJob("7", "vcA", 8, 0.0, 60.0, "u1"),
        TenantJob("10", "vcB", 1, 60.0, 30.0, "u2"),
    )
    assert trace.left_out == {"no GPU": 1, "never ran": 1}


def test_tenant_trace_attempts_of_philly_are_one_job(tmp_path: Path) -> None:
    def attempt(start: str, end: str) -> object:
        detail = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]
        return {"start_time": f"2017-10-09 {start}", "end_time": f"2017-10-09 {end}", "detail": detail}

    def row(name: str, user: str, at: str, *attempts: object) -> object:
        submitted = f"2017-10-09 {at}"
        return {
            "jobid": name,
            "vc": "6214e9",
            "user": user,
            "submitted_time": submitted,
            "attempts": attempts,
        }

    rows = [
        row(
            "application_1",
            "ann",
            "07:00:00",
            attempt("07:01:00", "07:02:00"),
            attempt("07:03:00", "07:03:30"),
        ),
        row("application_2", "bob", "08:00:00"),
    ]
    trace = read_tenants(written(tmp_path / "cluster_job_log.json", json.dumps(rows)))
    assert trace.jobs == (TenantJob("application_1", "6214e9", 2, 0.0, 90.0, "ann"),)
    assert trace.left_out == {"never ran on GPUs": 1}


def test_tenant_trace_of_gavel_gives_the_published_jobs(tmp_path: Path) -> None:
    """The first job of 103959, and its duration in the data set that others made of the same file."""
    (tmp_path / "msr").mkdir()
    written(
        tmp_path / "msr" / "103959.trace",
        "Transformer (batch size 128)\tcd %s && python3 train.py\t-step\t1\t5635991\t0.000000\t1\n"
        "Recommendation (batch size 8192)\tcd %s && python3 train.py\t-n\t1\t10000\t6.000000\t7\n",
    )
    rates = {"v100": {"('Transformer (batch size 128)', 1)": {"null": 5.44610521981264}}}
    written(tmp_path / "simulation_throughputs.json", json.dumps(rates))
    trace = read_tenants(tmp_path / "msr")
    first = read_tenants(PHILLY6).jobs[0]
    assert (first.tenant, first.gpus, round(trace.jobs[0].lasts_s)) == ("103959", 1, first.lasts_s)
    assert trace.left_out == {"no throughput of its model on so many GPUs": 1}


HEAD = "job_id,tenant,num_gpu,submit_time,duration,preemptible,timeout\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("job_id,num_gpu,submit_time,duration\n1,1,0,1\n", "there is no column tenant"),
        (HEAD + "1,a,0,0,1,,\n", "line 2: num_gpu is '0'"),
        (HEAD + "1,a,1.5,0,1,,\n", "num_gpu is '1.5'"),
        (HEAD + "1,a,1,-1,1,,\n", "submit_time is '-1'"),
        (HEAD + "1,a,1,0,0,,\n", "duration is '0'"),
        (HEAD + "1,a,1,0,inf,,\n", "duration is 'inf'"),
        (HEAD + "1,,1,0,1,,\n", "tenant is ''"),
        (HEAD + "1,a,1,0,1,perhaps,\n", "preemptible is 'perhaps'"),
        (HEAD + "1,a,1,0,1,,0\n", "timeout is '0'"),
        (HEAD + "1,a,1,0,1,,\n1,a,1,0,1,,\n", "line 3: job_id is '1'"),
        (HEAD, "has no jobs"),
    ],
)
def test_tenant_trace_line_that_is_wrong_is_refused_with_its_place(
    tmp_path: Path, text: str, wanted: str
) -> None:
    with pytest.raises(Damaged, match=wanted):
        read_tenants(written(tmp_path / "t.csv", text))


def test_tenant_trace_folder_without_throughputs_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.trace", "")
    with pytest.raises(NotFound, match="simulation_throughputs"):
        read_tenants(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[{}]", "not json", '[{"attempts": [{}]}]'])
def test_tenant_trace_of_another_form_than_philly_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Damaged):
        read_tenants(written(tmp_path / "log.json", text))
