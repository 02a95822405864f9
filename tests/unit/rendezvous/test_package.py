"""What a worker pod imports: quickly loaded, without warnings, from the standard library alone."""

import subprocess
import sys

PROGRAM = """
import sys
before = set(sys.modules)
import elasticjob.events, elasticjob.rendezvous, elasticjob.rendezvous.dynamic_rendezvous
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - sys.stdlib_module_names))
"""


def test_a_worker_loads_the_standard_library_alone() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "elasticjob\n"
