"""A training process for tests: meets the others, writes down what it was told, and works until it is told to end.

Usage: training.py NOTES CONTROL. NOTES is a file that gets a line of JSON for each event; in the directory CONTROL the
file `end` ends training, and `crash-<node>` makes the process on that node fail with exit code 7.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed


def main(notes: Path, control: Path) -> None:
    """Train."""
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    total = torch.ones(1)
    distributed.all_reduce(total)
    note(notes, "start", int(total))
    node = os.environ["ELASTICJOB_POD_IP"]
    while not (control / "end").exists():
        time.sleep(0.05)
        if (control / f"crash-{node}").exists():
            (control / f"crash-{node}").unlink()
            os._exit(7)
    distributed.barrier()
    note(notes, "end", int(total))
    distributed.destroy_process_group()


def note(notes: Path, event: str, total: int) -> None:
    """Write one line, at once."""
    names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "ELASTICJOB_ROUND", "ELASTICJOB_POD_IP")
    line = {"event": event, "sum": total, "pid": os.getpid(), **{name: os.environ[name] for name in names}}
    with notes.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
