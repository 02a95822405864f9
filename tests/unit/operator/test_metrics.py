import pytest

from elasticjob.operator.metrics import Metrics

LABELLED = [
    'elasticjob_rendezvous_rounds_total{cause="loss"}',
    'elasticjob_rendezvous_calls_refused_total{code="fenced"}',
    'elasticjob_rendezvous_stale_calls_total{call="leave"}',
    'elasticjob_rendezvous_connections_cut_total{cause="tls"}',
    'elasticjob_half_restarts_total{half="rendezvous"}',
    'elasticjob_events_posted_total{type="Warning"}',
    'elasticjob_events_dropped_total{cause="queue-full",type="Normal"}',
    'elasticjob_reconciles_total{result="error"}',
]


@pytest.mark.parametrize("series", LABELLED)
def test_a_rare_series_is_there_before_it_counts(series: str) -> None:
    """`increase()` does not see the first increment of a series that begins with it."""
    assert f"{series} 0.0" in Metrics().render().decode().splitlines()


def test_calls_to_the_api_server_are_counted_by_what_came_of_them() -> None:
    metrics = Metrics()
    with metrics.api_call("get", "pods") as outcome:
        outcome.code = "200"
    with pytest.raises(OSError, match="no route"), metrics.api_call("get", "pods"):
        raise OSError("no route")
    lines = metrics.render().decode().splitlines()
    assert 'elasticjob_api_calls_total{code="200",resource="pods",verb="get"} 1.0' in lines
    assert 'elasticjob_api_calls_total{code="none",resource="pods",verb="get"} 1.0' in lines
