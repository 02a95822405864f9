"""`python -m tests.demo`: see `--help`."""

from __future__ import annotations

import argparse
import os
import sys

from tests.cluster.errors import ClusterError
from tests.demo.output import say
from tests.demo.story import NAMESPACE, RELEASE, SYSTEM_NAMESPACE, remove_all, tell
from tests.demo.targets import Options, Target, find_target


def main() -> int:
    """Run the demo and say how to go on."""
    options = _options()
    try:
        target = find_target(options)
        try:
            tell(target)
        finally:
            if options.remove:
                remove_all(target)
    except ClusterError as error:
        say(f"FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    if not options.remove:
        _how_to_go_on(target)
    return 0


def _options() -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m tests.demo", description="Train a job, kill its rank 0, see it go on"
    )
    parser.add_argument(
        "--image",
        default=os.environ.get("IMAGE") or None,
        help="the operator's image, for your own cluster (IMAGE); without it, a cluster is made on this machine",
    )
    parser.add_argument(
        "--worker-image",
        default=os.environ.get("WORKER_IMAGE") or None,
        help="an image with torch and scikit-learn, for your own cluster (WORKER_IMAGE)",
    )
    parser.add_argument(
        "--storage-class",
        default=os.environ.get("STORAGE_CLASS") or None,
        help="a storage class with ReadWriteMany, for your own cluster (STORAGE_CLASS)",
    )
    parser.add_argument(
        "--rm", action="store_true", default=bool(os.environ.get("RM")), help="remove everything at the end (RM=1)"
    )
    chosen = parser.parse_args()
    return Options(
        image=chosen.image,
        worker_image=chosen.worker_image,
        storage_class=chosen.storage_class,
        remove=chosen.rm,
    )


def _how_to_go_on(target: Target) -> None:
    prefix = "kubectl"
    if target.test_cluster is not None:
        prefix = f"{target.kubectl.program} --kubeconfig {target.kubectl.kubeconfig}"
    say(f"the cluster is still up, look around: {prefix} -n {NAMESPACE} get elasticjobs,pods")
    if target.test_cluster is not None:
        say("take it down with: make cluster-down")
    else:
        say(f"remove it with: kubectl delete namespace {NAMESPACE}; helm uninstall -n {SYSTEM_NAMESPACE} {RELEASE}")


if __name__ == "__main__":
    sys.exit(main())
