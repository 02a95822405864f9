"""The checkpoints of the digits example are fenced by the round. Real torch, no cluster."""

import os
import subprocess
import sys
from pathlib import Path

from tests.demo.digits import EXAMPLE

SCRIPT = """
import sys
from pathlib import Path
import train

older, newer = (train.Checkpoints(Path(sys.argv[1]), number) for number in (9, 10))
assert older.load() is None
older.save({"epoch": 1})
newer.save({"epoch": 2})
assert [path.name for path in Path(sys.argv[1]).iterdir()] == ["round-10.pt"]
try:
    older.save({"epoch": 3})
except train.FencedError as error:
    assert str(error) == "round 9 must not write: round-10.pt is newer", error
else:
    raise AssertionError("a process of an older round wrote")
assert older.load() == newer.load() == {"epoch": 2}
newer.save({"epoch": 4})
assert newer.load() == {"epoch": 4}
"""


def test_a_process_of_an_older_round_cannot_write(torch_packages: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{torch_packages}{os.pathsep}{EXAMPLE}"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
