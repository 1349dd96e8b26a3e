"""``python -m benchmarks.peers``: rounds of FedAvg beside other programs, each in an environment of its own."""

import json
import sys
import tempfile
from pathlib import Path

from fl_platform.cli import exit_code
from fl_platform.cli.parser import Parser
from fl_platform.errors import UserError, cannot_write

README = Path(__file__).resolve().parents[1] / "README.md"


def main(arguments: list[str]) -> int:
    from benchmarks.peers.catalogue import PEERS
    from benchmarks.peers.work import WORKLOADS

    names = [peer.name for peer in PEERS]
    parser = Parser(
        prog="python -m benchmarks.peers",
        description="Measure rounds of FedAvg on W1 and W2 with this platform and with others, in turns. Environments "
        "are made below build/peers, which needs a network or a package index the first time.",
    )
    parser.add_argument("--only", nargs="+", default=names, metavar="PEER", help=f"of {', '.join(names)}")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), metavar="NAME", help="w1, w2; else both")
    parser.add_argument("--cores", type=int, default=1, help="cores and threads of each program (default 1)")
    parser.add_argument("--quick", action="store_true", help="one turn of few rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a record per workload and peer")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    args = parser.parse_args(arguments)
    check("--only", args.only, names)
    check("--workloads", args.workloads, list(WORKLOADS))
    if args.cores < 1:
        raise UserError(f"--cores {args.cores}: at least 1 is needed")
    return compare(args.only, args.workloads, args.cores, args.quick, args.json, args.write)


def check(option: str, given: list[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise UserError(f"{option} {name}: must be of {', '.join(known)}")


def compare(only: list[str], workloads: list[str], cores: int, quick: bool, place: Path | None, write: bool) -> int:
    """Measure, print, and write what is asked for; 1 if a peer has no numbers."""
    from benchmarks import machine
    from benchmarks.peers import results, turns, work
    from benchmarks.peers.catalogue import PEERS
    from benchmarks.peers.environments import NotInstalled, interpreter

    pythons, missing = [], []
    for peer in PEERS:
        if peer.name in only:
            try:
                pythons.append((peer, interpreter(peer, say)))
            except NotInstalled as error:
                missing.append(turns.Measured(peer, failure=str(error)))
    description, found = machine.description(), {}
    plans = {"w1": (1, 2, 8) if quick else (3, 3, 20), "w2": (1, 1, 1) if quick else (1, 1, 3)}
    for workload in workloads:
        repeats, warm_up, rounds = plans[workload]
        with tempfile.TemporaryDirectory(prefix="fl_platform-peers-") as directory:
            folder = work.write(work.settings_of(workload), Path(directory) / workload)
            measured = turns.measure(
                pythons, folder, turns=repeats, warm_up=warm_up, rounds=rounds, cores=cores, say=say
            )
        found[workload] = [*measured, *missing]
    print(results.as_text(found))
    if place:
        try:
            place.write_text(json.dumps(results.as_records(found), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise cannot_write(f"--json {place}", error) from None
    if write:
        how = ", ".join(
            f"{name.upper()} {rounds} rounds after {warm_up}" + (f", {repeats} turns" if repeats > 1 else "")
            for name, (repeats, warm_up, rounds) in plans.items()
            if name in found
        )
        about = {key: description[key] for key in ("processor", "system", "load before")}
        results.refresh(README, results.as_markdown(found, about, f"{how}, {cores} core for each program"))
    return int(any(one.failure for measured in found.values() for one in measured))


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
