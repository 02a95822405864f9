"""Asks the cluster by running kubectl, with the context and the credentials of whoever runs this."""

import json
import re
import subprocess
from collections.abc import Sequence
from typing import Any

from elasticjob.operator.pods import selector

RESOURCE = "elasticjobs.elasticjob.dev"
_REQUEST_SECONDS = 15
_CALL_SECONDS = 30
_LOG_LINE = re.compile(r"[IWEF][0-9]{4} [0-9:.]+ ")
"""kubectl logs what it has tried before it says what the matter is."""


class KubectlError(Exception):
    """The cluster could not be asked, or refused. The message is for people."""


class NotFoundError(KubectlError):
    """There is no such job."""


class EvictionRefusedError(KubectlError):
    """A pod may not be evicted now. The message is in the words of the API server."""


class Kubectl:
    """kubectl with the options that were given: `--namespace`, `--context`, `--kubeconfig`."""

    def __init__(self, options: Sequence[str] = (), *, program: str = "kubectl") -> None:
        self._program = program
        self._options = tuple(options)

    def job(self, name: str) -> dict[str, Any]:
        """Read a job.

        Raises:
            NotFoundError: There is none of that name.
            KubectlError: Everything else.
        """
        return self._get(RESOURCE, name)

    def events(self, job: str, namespace: str) -> list[dict[str, Any]]:
        """The Events about objects of this name and kind."""
        about = f"involvedObject.name={job},involvedObject.kind=ElasticJob"
        listed = self._get("events", "--namespace", namespace, "--field-selector", about)
        items = listed.get("items")
        return items if isinstance(items, list) else []

    def pods(self, job_uid: str, namespace: str) -> list[dict[str, Any]]:
        """The pods of a job."""
        items = self._get("pods", "--namespace", namespace, "--selector", selector(job_uid)).get("items")
        return items if isinstance(items, list) else []

    def evict(self, eviction: dict[str, Any]) -> None:
        """Ask a pod to leave.

        Raises:
            EvictionRefusedError: A PodDisruptionBudget is in the way.
            KubectlError: Everything else.
        """
        pod, namespace = eviction["metadata"]["name"], eviction["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        self._run("create", "--raw", path, "--filename=-", given=json.dumps(eviction))

    def _get(self, *arguments: str) -> dict[str, Any]:
        answer = self._run("get", *arguments, "--output=json", subject=arguments)
        try:
            found = json.loads(answer)
        except ValueError as error:
            raise KubectlError(f"kubectl gave an answer that is not JSON: {error}") from error
        return found if isinstance(found, dict) else {}

    def _run(self, verb: str, *arguments: str, subject: tuple[str, ...] = (), given: str | None = None) -> str:
        words = [self._program, verb, *self._options, *arguments, f"--request-timeout={_REQUEST_SECONDS}s"]
        try:
            done = subprocess.run(
                words, input=given, capture_output=True, check=False, timeout=_CALL_SECONDS, encoding="utf-8"
            )
        except FileNotFoundError as error:
            raise KubectlError(f"{self._program} was not found on PATH; this command works through it") from error
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl gave no answer within {_CALL_SECONDS} seconds") from error
        if done.returncode:
            raise _refusal(done.stderr.strip(), subject)
        return done.stdout


def _refusal(words: str, subject: tuple[str, ...]) -> KubectlError:
    """What kubectl said, in terms of what was asked for."""
    if "the server doesn't have a resource type" in words:
        return KubectlError(f"the cluster knows no {RESOURCE}: is elasticjob installed there?")
    if "(NotFound)" in words and subject[:1] == (RESOURCE,):
        return NotFoundError(f"there is no ElasticJob {subject[1]!r} in this namespace (kubectl get {RESOURCE} -A)")
    if "(TooManyRequests)" in words:
        return EvictionRefusedError(words.partition("(TooManyRequests): ")[2] or words)
    if "(Forbidden)" in words:
        return KubectlError(f"no permission: {words.partition('(Forbidden): ')[2] or words}")
    said = " ".join(line for line in words.splitlines() if not _LOG_LINE.match(line))
    return KubectlError(said or "kubectl failed and did not say why")
