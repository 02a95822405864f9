"""The command line: `python -m tests.cluster <command>`; README.md tells what the commands are for."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import cluster as clusters
from tests.cluster.build import PROGRAMS, binaries, outdated_builds
from tests.cluster.cleanup import prune
from tests.cluster.cluster import DEFAULT_NAME, DEFAULT_NODES, Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.image_sets import dependencies_layer, operator_image, operator_image_name, python_image
from tests.cluster.packages import ETCD_V2_PACKAGES, IMAGE_PACKAGES, NODE_PACKAGES, PROMETHEUS_PACKAGES, ensure
from tests.cluster.paths import REPOSITORY
from tests.cluster.processes import log_tail
from tests.cluster.state import CONTROL_PLANE, FULL, all_records
from tests.cluster.torch_packages import torch_site_packages


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Kubernetes on this machine.")
    commands = top.add_subparsers(required=True, metavar="command")
    starting = _command(commands, "up", _up, "start a cluster, or use the one that runs")
    starting.add_argument("--level", choices=[CONTROL_PLANE, FULL], default=FULL)
    starting.add_argument("--nodes", type=int, default=DEFAULT_NODES, help=f"of level {FULL}; default {DEFAULT_NODES}")
    starting.add_argument("--audit", action="store_true", help="keep an audit log of every request")
    starting.add_argument("--no-controllers", action="store_true", help="no controller-manager (not at level full)")
    starting.add_argument("--admission-plugin", action="append", default=[], metavar="NAME")
    _command(commands, "down", _down, "stop a cluster and leave nothing of it behind")
    _command(commands, "status", _status, "show the clusters of this machine", named=False)
    _command(commands, "kubeconfig", _kubeconfig, "print the path of the administrator's kubeconfig")
    loading = _command(commands, "load-image", _load_image, "import an image archive into every node")
    loading.add_argument("archive", type=Path)
    building = _command(commands, "image", _image, "make an image and print the path of its archive", named=False)
    building.add_argument("image", choices=["operator", "python"])
    installing = _command(commands, "torch", _torch, "install torch for pods and print where", named=False)
    installing.add_argument("--version")
    for name, run, text in (
        ("kill-node", _kill_node, "lose a node, as when its machine loses power"),
        ("start-node", _start_node, "bring a lost node back"),
    ):
        _command(commands, name, run, text).add_argument("node")
    logs = _command(commands, "logs", _logs, "print the end of a component's log, or of all")
    logs.add_argument("component", nargs="?")
    showing = _command(commands, "bin", _bin, "print the path of a program", named=False)
    showing.add_argument("program", choices=PROGRAMS)
    _command(commands, "prepare", _prepare, "make and cache all that is slow the first time", named=False)
    _command(commands, "prune", _prune, "remove clusters of dead test runs and outdated builds", named=False)
    return top


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: object,
    text: str,
    *,
    named: bool = True,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(run=run)
    if named:
        command.add_argument("--name", default=DEFAULT_NAME, help=f"of the cluster; default {DEFAULT_NAME}")
    return command


def _up(options: argparse.Namespace) -> None:
    cluster = clusters.up(
        level=options.level,
        name=options.name,
        node_count=options.nodes,
        controllers=not options.no_controllers,
        admission_plugins=options.admission_plugin,
        audit=options.audit,
    )
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={binaries()}:$PATH")


def _down(options: argparse.Namespace) -> None:
    done = clusters.down(options.name)
    print(f"cluster {options.name} is down" if done else f"there is no cluster {options.name}")


def _status(_options: argparse.Namespace) -> None:
    records = all_records()
    if not records:
        print("no cluster is up")
    for record in records:
        state = "healthy" if record.healthy() else "not healthy"
        print(f"{record.name}  {record.level}  {state}  {record.directory}")
        for component, process in record.processes.items():
            print(f"  {component:24} {process.pid:8} {'running' if process.alive() else 'ended'}")


def _kubeconfig(options: argparse.Namespace) -> None:
    print(Cluster(options.name).kubeconfig)


def _load_image(options: argparse.Namespace) -> None:
    Cluster(options.name).load_image(options.archive.resolve())


def _image(options: argparse.Namespace) -> None:
    if options.image == "operator":
        print(f"{operator_image()}")
        print(f"pods name it {operator_image_name()}", file=sys.stderr)
    else:
        print(python_image())


def _torch(options: argparse.Namespace) -> None:
    print(torch_site_packages(options.version))


def _prepare(_options: argparse.Namespace) -> None:
    for needed in (NODE_PACKAGES, IMAGE_PACKAGES, ETCD_V2_PACKAGES, PROMETHEUS_PACKAGES):
        ensure(needed)
    print(binaries())
    print(python_image())
    print(dependencies_layer(REPOSITORY))
    print(torch_site_packages())


def _kill_node(options: argparse.Namespace) -> None:
    Cluster(options.name).kill_node(options.node)


def _start_node(options: argparse.Namespace) -> None:
    Cluster(options.name).start_node(options.node)


def _logs(options: argparse.Namespace) -> None:
    record = Cluster(options.name).record
    components = [options.component] if options.component else sorted(record.processes)
    for component in components:
        print(f"--- {component} ({record.log(component)})")
        print(log_tail(record.log(component)))


def _bin(options: argparse.Namespace) -> None:
    print(binaries() / options.program)


def _prune(_options: argparse.Namespace) -> None:
    for name in prune():
        print(f"removed cluster {name}")
    for path in outdated_builds():
        shutil.rmtree(path)
        print(f"removed {path}")


if __name__ == "__main__":
    sys.exit(main())
