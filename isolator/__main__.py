"""Command `python -m isolator executor|monitor|keeper|doctor`; `probe` and `nvml` are children of these."""

import sys


def main() -> int:
    """Run the program that the first argument names; return its exit code."""
    program = sys.argv[1] if len(sys.argv) == 2 else ""
    if program == "executor":
        from isolator.executor.main import main as run_executor

        return run_executor()
    if program == "monitor":
        from isolator.node.monitor import main as run_monitor

        return run_monitor()
    if program == "keeper":
        from isolator.shares.keeper import main as run_keeper

        return run_keeper()
    if program == "doctor":
        from isolator.node.fitness import main as run_doctor

        return run_doctor()
    if program == "probe":
        from isolator.gpus.probing import main as run_probe

        return run_probe()
    if program == "nvml":
        from isolator.gpus.nvml_child import main as run_nvml

        return run_nvml()
    print("usage: python -m isolator executor|monitor|keeper|doctor", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
