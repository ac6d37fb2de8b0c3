"""MESSAGE as Mesos' v1 API has it."""

from mesos_gpu.adapters import pymesos_driver as pd
from mesos_gpu.testing.scripted_master import Inbox, ScriptedMaster


def test_a_message_says_agent_executor_and_data() -> None:
    with ScriptedMaster() as master:
        inbox = Inbox()
        framework = pd.FrameworkSettings("u", "n", ("*",), "", "h", 60.0)
        driver = pd.PymesosDriver(framework, master.address, inbox)
        driver.start()
        try:
            inbox.wait_for(pd.Registered)
            driver.message("a1", "e1", b"{}")
            to = {"agent_id": {"value": "a1"}, "executor_id": {"value": "e1"}}
            assert master.wait_for("MESSAGE").body["message"] == {**to, "data": "e30="}
        finally:
            driver.stop(teardown=False)
