"""Print or write down what the engine decides in random worlds: `python -m tests.decisions [--write] [MIX SEED]`."""

import argparse

from tests.decisions.recorded import DATA, KINDS, MIXES, SEEDS, digests, record


def main() -> None:
    """Write the files of digests, or print what the digests of one world are of."""
    parser = argparse.ArgumentParser(prog="python -m tests.decisions", description=__doc__)
    parser.add_argument(
        "mix", nargs="?", choices=MIXES, help="mix of acts; with SEED, all lines of that world"
    )
    parser.add_argument(
        "seed", nargs="?", type=int, help=f"seed of the world; {SEEDS[0]} to {SEEDS[-1]} are recorded"
    )
    parser.add_argument("--write", action="store_true", help="record the present behaviour")
    options = parser.parse_args()
    if options.write:
        DATA.mkdir(exist_ok=True)
        for mix in MIXES:
            written = [f"{line}\n" for seed in SEEDS for line in digests(mix, seed)]
            (DATA / f"{mix}.txt").write_text("".join(written))
    elif options.mix is None or options.seed is None:
        parser.error("name a MIX and a SEED, or give --write")
    else:
        for number, lines in record(options.mix, options.seed):
            for kind in KINDS:
                print(f"== {kind} to act {number}", *lines[kind], sep="\n")


if __name__ == "__main__":
    main()
