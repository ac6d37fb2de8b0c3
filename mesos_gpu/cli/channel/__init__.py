"""Commands that open channels into running jobs: exec, port-forward, interactive runs."""
