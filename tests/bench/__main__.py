"""Runs every benchmark and writes `build/bench.json`: one flat object, name → number.

Each benchmark is a module of this package with `measure() -> dict[str, float]`. Names given on the command line choose
some of them; the numbers of the others are kept.
"""

import importlib
import json
import sys
from pathlib import Path

RESULTS = Path("build/bench.json")
BENCHMARKS = (
    "state_size",
    "events_null",
    "peer_join",
    "hosted_n64",
    "hosted_n1000",
    "hosted_detect",
    "operator_detect",
    "operator_pods200",
    "operator_idle500",
    "operator_pods2000",
    "mirror_cost",
    "status_n3000",
    "flood_n500",
)


def main(chosen: list[str]) -> int:
    unknown = set(chosen) - set(BENCHMARKS)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in chosen or BENCHMARKS:
        print(f"{name} …", flush=True)
        measured = importlib.import_module(f"tests.bench.{name}").measure()
        for key, value in measured.items():
            print(f"  {key:40} {value:g}", flush=True)
        results |= measured
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    print(f"written to {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
