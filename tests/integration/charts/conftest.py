"""Fixtures of the chart's tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.build import binaries
from tests.cluster.kubectl import Helm

CHART = str(Path(__file__).resolve().parents[3] / "charts" / "elasticjob")
SYSTEM = "system"

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm that knows no cluster: rendering may not need one."""
    home = tmp_path_factory.mktemp("helm")
    return Helm(program=binaries() / "helm", kubeconfig=home / "none", home=home)


@pytest.fixture
def render(helm: Helm) -> Render:
    """Render the chart with `--set` settings."""

    def rendered(
        *settings: str, release: str = "elasticjob", namespace: str = SYSTEM, flags: tuple[str, ...] = ()
    ) -> Objects:
        sets = [f"--set={setting}" for setting in settings]
        text = helm("template", release, CHART, "--namespace", namespace, *sets, *flags)
        return [one for one in yaml.safe_load_all(text) if one]

    return rendered
