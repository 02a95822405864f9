"""A real Prometheus that scrapes the operator as the chart's PodMonitor says.

The Prometheus operator turns a PodMonitor into a scrape configuration; `scrape_config` does the same for what the chart
uses. Only discovery is played, since Debian's Prometheus is built without the one for Kubernetes: the pods that the
PodMonitor selects are asked for at the API server, by its labels and the name of its port.
"""

import contextlib
import json
import os
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.packages import PROMETHEUS_PACKAGES, ensure
from tests.cluster.processes import start, wait_until

SCRAPE_SECONDS = 1
_CALL_SECONDS = 30.0
_START_SECONDS = 60.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

Body = Mapping[str, Any]


class Prometheus:
    """One server, asked by its HTTP API."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        """Whether it has started."""
        try:
            with _OPENER.open(f"{self._base}/-/ready", timeout=_CALL_SECONDS):
                return True
        except OSError:
            return False

    def query(self, expression: str) -> list[Body]:
        """The series that an expression gives now."""
        answer = self._get("query", query=expression)
        found: list[Body] = answer["data"]["result"]
        return found

    def values(self, expression: str) -> list[float]:
        """The values of these series."""
        return [float(series["value"][1]) for series in self.query(expression)]

    def rules(self) -> list[Body]:
        """The alerting rules that it has loaded, with their state."""
        groups = self._get("rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self._base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with _OPENER.open(url, timeout=_CALL_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error


@contextlib.contextmanager
def prometheus(directory: Path, *, port: int, scrape: Body, groups: list[Body]) -> Iterator[Prometheus]:
    """Run a server with this scrape configuration and these groups of rules."""
    ensure(PROMETHEUS_PACKAGES)
    every = f"{SCRAPE_SECONDS}s"
    rules, settings, log = directory / "rules.yaml", directory / "prometheus.yaml", directory / "prometheus.log"
    rules.write_text(yaml.safe_dump({"groups": groups}))
    known = {"global": {"scrape_interval": every, "evaluation_interval": every}, "rule_files": [str(rules)]}
    settings.write_text(yaml.safe_dump({**known, "scrape_configs": [dict(scrape)]}))
    command = [
        str(PROMETHEUS_PACKAGES["prometheus"]),
        f"--config.file={settings}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    process = start("prometheus", command, log=log, tags={})
    server = Prometheus(port)
    try:
        wait_until(server.is_ready, what="start of Prometheus", timeout=_START_SECONDS, watched=[process])
        yield server
    finally:
        os.kill(process.identity.pid, signal.SIGKILL)
        wait_until(lambda: not process.identity.alive(), what="end of Prometheus", timeout=_START_SECONDS)


def scrape_config(monitor: Body, pods: Iterable[Body]) -> Body:
    """What the Prometheus operator makes of a PodMonitor with one endpoint, but for the interval.

    Args:
        monitor: The PodMonitor.
        pods: The pods that it selects.
    """
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    targets = [
        f"{pod['status']['podIP']}:{port['containerPort']}"
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container["ports"]
        if port["name"] == endpoint["port"]
    ]
    return {
        "job_name": f"podMonitor/{monitor['metadata']['namespace']}/{monitor['metadata']['name']}/0",
        "scheme": endpoint.get("scheme", "http"),
        "metrics_path": endpoint.get("path", "/metrics"),
        "static_configs": [{"targets": targets}],
    }
