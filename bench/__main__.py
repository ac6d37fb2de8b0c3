"""The command line of the benchmarks: `python -m bench COMMAND`."""

from bench.commands import bench

if __name__ == "__main__":
    bench(prog_name="python -m bench")
