"""Recording an event that goes nowhere must cost next to nothing: ours against torch's, in one process.

The calls are interleaved, and the least time of each counts: whatever else the machine does only adds to it.
"""

import json
import subprocess
import sys

from tests.cluster.torch_packages import torch_site_packages

ROUNDS = 15
CALLS = 20_000

SCRIPT = f"""
import json, timeit
from torch.distributed.elastic.events import construct_and_record_rdzv_event as theirs, NodeState as TheirState
from elasticjob.events import construct_and_record_rdzv_event as ours, NodeState as OurState

def seconds(record, state):
    return timeit.timeit(lambda: record(run_id="r", message="m", node_state=state), number={CALLS})

seconds(ours, OurState.RUNNING), seconds(theirs, TheirState.RUNNING)
pairs = [(seconds(ours, OurState.RUNNING), seconds(theirs, TheirState.RUNNING)) for _ in range({ROUNDS})]
print(json.dumps(min(o for o, _ in pairs) / min(t for _, t in pairs)))
"""


def measure() -> dict[str, float]:
    paths = ["events", "rendezvous", str(torch_site_packages())]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env={"PYTHONPATH": ":".join(paths), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the comparison with torch failed:\n{done.stderr[-2000:]}")
    return {"events.null.ratio_vs_torch": float(json.loads(done.stdout.splitlines()[-1]))}
