"""Runs the operator: `python -m elasticjob.operator`.

It takes no arguments: `elasticjob.operator.settings` lists its environment variables. Exit status 0 after SIGTERM, 2
for wrong settings, 1 when a part could not be kept running (Kubernetes then starts the container anew).
"""

import asyncio
import logging
import os
import sys
from dataclasses import replace

from elasticjob.operator import logs
from elasticjob.operator.app import App, Parts
from elasticjob.operator.clock import SystemClock
from elasticjob.operator.hosting.compose import ServerParts, Trust, server_factory
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.plan import plan
from elasticjob.operator.pods import OperatorFacts
from elasticjob.operator.settings import Settings, SettingsError, from_environment
from elasticjob.rendezvous.endpoint import ServerEndpoint


def compose(settings: Settings) -> App:
    """The operator as it runs in a cluster."""
    fixed = OperatorFacts(
        image=settings.image,
        endpoint=ServerEndpoint.parse(settings.endpoint, tls=settings.rendezvous_tls),
        pull_policy=settings.image_pull_policy,
        pull_secrets=settings.image_pull_secrets,
    )
    trust = Trust() if settings.rendezvous_tls else None

    def facts() -> OperatorFacts:
        return fixed if trust is None else replace(fixed, ca_bundle=trust.bundle())

    metrics = Metrics()
    server = server_factory(ServerParts(metrics=metrics, trust=trust))
    return App(settings, Parts(clock=SystemClock(), planner=plan, facts=facts, server=server, metrics=metrics))


def main() -> None:
    """Run until told to stop. Never returns: threads that hang must not keep the process."""
    try:
        settings = from_environment(os.environ)
    except SettingsError as error:
        print(f"elasticjob-operator: {error}", file=sys.stderr)
        sys.exit(2)
    logs.configure(level=settings.log_level, style=settings.log_format)
    status = asyncio.run(compose(settings).run())
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
