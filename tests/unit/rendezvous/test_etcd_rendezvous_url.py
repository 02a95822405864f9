"""The legacy etcd rendezvous from a URL."""

import pytest

from elasticjob.rendezvous.etcd_rendezvous import create_rdzv_handler, parameters_from_url


def test_the_documented_example_is_read() -> None:
    params = parameters_from_url("etcd://localhost:2379/1234?min_workers=1&max_workers=3")
    assert (params.endpoint, params.run_id, params.min_nodes, params.max_nodes) == ("localhost:2379", "1234", 1, 3)
    assert params.config == {}


def test_options_are_passed_on() -> None:
    params = parameters_from_url(
        "etcd://h/run?min_workers=2&timeout=60&last_call_timeout=5&etcd_prefix=%2Fmine&protocol=https"
    )
    assert (params.min_nodes, params.max_nodes) == (2, 2)
    assert params.config == {"timeout": "60", "last_call_timeout": "5", "etcd_prefix": "/mine", "protocol": "https"}


def test_ipv6_and_escaped_run_ids_are_read() -> None:
    params = parameters_from_url("etcd://[fd00::1]:2379/team%2Fexp%201?min_workers=1")
    assert (params.endpoint, params.run_id) == ("[fd00::1]:2379", "team/exp 1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://h/run?min_workers=1", "scheme 'http'"),
        ("etcd://h/run", "needs min_workers as a whole number, not None"),
        ("etcd://h/run?min_workers=few", "needs min_workers as a whole number, not 'few'"),
        ("etcd://h/run?min_workers=1&max_workers=-1", "needs max_workers as a whole number, not '-1'"),
        ("etcd://h/run?min_workers=3&max_workers=2", "maximum number"),
        ("etcd://h/?min_workers=1", "run_id must be a non-empty string"),
        ("etcd://h:x/run?min_workers=1", "port"),
        ("etcd://h/run?min_workers=1&timeout=0", "timeout must be a whole number from 1 to 604800, not '0'"),
        ("etcd://h/run?min_workers=1&last_call_timeout=-1", "last_call_timeout must be .* from 0 to 604800, not '-1'"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_rdzv_handler(url)
