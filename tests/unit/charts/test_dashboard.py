"""The Grafana dashboard asks for what the operator exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric

from elasticjob.operator.metrics import Metrics

DASHBOARD = Path(__file__).resolve().parents[3] / "charts" / "elasticjob" / "dashboards" / "elasticjob.json"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


def families() -> list[Metric]:
    return list(Metrics().registry.collect())


def panels() -> Iterator[dict[str, Any]]:
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return (panel for panel in loaded["panels"] if panel["type"] != "row")


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def asked_for() -> set[str]:
    return {name for query in queries() for name in re.findall(r"elasticjob_\w+", query)}


@pytest.mark.parametrize("query", queries())
def test_a_query_asks_for_series_that_exist(query: str) -> None:
    exported = {family.name + suffix for family in families() for suffix in SUFFIXES[family.type]}
    names = re.findall(r"elasticjob_\w+", query)
    assert names
    assert set(names) <= exported


def test_every_metric_has_its_place_on_the_dashboard() -> None:
    unseen = {
        family.name
        for family in families()
        if not asked_for() & {family.name + suffix for suffix in SUFFIXES[family.type]}
    }
    assert not unseen


def test_counters_are_shown_as_rates_and_increases_alone() -> None:
    for query in queries():
        for name in re.findall(r"elasticjob_\w+_(?:total|bucket)", query):
            assert re.search(rf"(rate|increase)\({name}\[", query), query


@pytest.mark.parametrize("query", [query for query in queries() if " by (" in query])
def test_a_query_groups_by_labels_that_its_metric_has(query: str) -> None:
    metrics = Metrics()
    (name,) = re.findall(r"elasticjob_\w+", query)
    (collector,) = {collector for collector, names in metrics.registry._collector_to_names.items() if name in names}
    has = {*collector._labelnames, "le"} if name.endswith("_bucket") else set(collector._labelnames)  # type: ignore[attr-defined]
    (grouped,) = re.findall(r" by \(([^)]*)\)", query)
    assert set(grouped.split(", ")) <= has


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & taken
        assert all(x < 24 for x, _ in own)
        taken |= own
