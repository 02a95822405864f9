"""The command line of `kubectl elasticjob`.

Exit status: 0, 1 if the cluster could not be asked or there is no such job, 2 for a wrong command line, 130 when
interrupted.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone

from elasticjob.operator.plugin.drain import UnknownTargetError, eviction, leavers, outcome, refusal
from elasticjob.operator.plugin.events import event_lines
from elasticjob.operator.plugin.job import Job
from elasticjob.operator.plugin.kubectl import EvictionRefusedError, Kubectl, KubectlError, NotFoundError
from elasticjob.operator.plugin.picture import picture
from elasticjob.operator.plugin.screen import Screen, style_for
from elasticjob.operator.plugin.text import plain
from elasticjob.operator.plugin.why import why

_INTERVAL = 1.0
"""Seconds between two looks with --watch."""
_DELETED = "the job has been deleted"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(
        prog="kubectl elasticjob", description="Look at elastic training jobs, and drain their nodes."
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    texts = {
        "status": "show what a job does: its nodes and its rounds along time",
        "why": "say in one paragraph what a job waits for, and what would help",
        "events": "list what happened to a job, oldest first",
        "drain": "move a node of a job, or all on a machine, elsewhere: the others train on",
    }
    for name, help_ in texts.items():
        command = commands.add_parser(name, help=help_, description=help_)
        command.add_argument("job", metavar="JOB")
        if name == "drain":
            command.add_argument("target", metavar="NODE", help="a node of the job, its pod, or a machine")
        command.add_argument("-n", "--namespace", help="where the job is, if not in the namespace of the context")
        command.add_argument("--context", help="context of the kubeconfig to use")
        command.add_argument("--kubeconfig", help="kubeconfig file to use")
        if name == "status":
            command.add_argument("-w", "--watch", action="store_true", help="redraw it until the job is over")
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    options = parser().parse_args(arguments)
    named = {name: getattr(options, name) for name in ("namespace", "context", "kubeconfig")}
    kubectl = Kubectl([f"--{name}={value}" for name, value in named.items() if value])
    try:
        if options.command == "drain":
            return _drain(kubectl, options.job, options.target)
        if options.command == "status" and options.watch:
            _watch(kubectl, options.job)
        else:
            _once(kubectl, options.command, options.job)
    except (KubectlError, UnknownTargetError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has gone; the interpreter must not try to flush it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _once(kubectl: Kubectl, command: str, name: str) -> None:
    style, now = style_for(sys.stdout, os.environ), _now()
    body = kubectl.job(name)
    if command == "events":
        job = Job(body)
        lines = event_lines(kubectl.events(name, job.namespace), job_uid=job.uid, now=now, style=style)
    elif command == "why":
        lines = why(body, now=now, style=style)
    else:
        lines = picture(body, now=now, style=style)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _drain(kubectl: Kubectl, name: str, target: str) -> int:
    """Evict what the target stands for; 1 if some of it may not leave now."""
    job = Job(kubectl.job(name))
    asked, refused = [], []
    for one in leavers(job, kubectl.pods(job.uid, job.namespace), target):
        try:
            if not one.is_leaving:
                kubectl.evict(eviction(one, job.namespace))
            asked.append(one)
        except EvictionRefusedError as error:
            refused.append(refusal(job, one, str(error)))
    sys.stdout.write("".join(f"{line}\n" for line in outcome(job, asked)))
    sys.stdout.flush()
    sys.stderr.write("".join(f"error: {line}\n" for line in refused))
    return int(bool(refused))


def _watch(kubectl: Kubectl, name: str) -> None:
    """Redraw until the job is over or gone. A cluster that does not answer for a while is waited for."""
    job, note = kubectl.job(name), ""
    with Screen(sys.stdout) as screen:
        while True:
            style = style_for(sys.stdout, os.environ)
            lines = picture(job, now=_now(), style=style)
            screen.show(
                [*lines, *([f"({note})"] if note else [])], version=f"{job['metadata']['resourceVersion']} {note}"
            )
            if note == _DELETED or (Job(job).is_over and not note):
                return
            time.sleep(_INTERVAL)
            try:
                job, note = kubectl.job(name), ""
            except NotFoundError:
                note = _DELETED
            except KubectlError as error:
                note = f"not up to date: {plain(error)}"


def _now() -> datetime:
    return datetime.now(timezone.utc)


if __name__ == "__main__":
    sys.exit(main())
