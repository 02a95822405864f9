"""Endpoints of the rendezvous server."""

import pytest

from elasticjob.rendezvous.endpoint import DEFAULT_PORT, ServerEndpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("operator:9000", "operator", 9000),
        ("operator.system.svc", "operator.system.svc", DEFAULT_PORT),
        ("10.0.0.9", "10.0.0.9", DEFAULT_PORT),
        ("10.0.0.9:2379", "10.0.0.9", 2379),
        ("[fd00::1]:2379", "fd00::1", 2379),
        ("[fd00::1]", "fd00::1", DEFAULT_PORT),
        ("fd00::1", "fd00::1", DEFAULT_PORT),
        ("2001:db8::8a2e", "2001:db8::8a2e", DEFAULT_PORT),
        ("::1", "::1", DEFAULT_PORT),
        ("  host:1  ", "host", 1),
        ("http://host:2379", "host", 2379),
        ("HTTPS://[fd00::1]:2379/", "fd00::1", 2379),
    ],
)
def test_an_endpoint_is_never_cut_at_the_wrong_colon(text: str, host: str, port: int) -> None:
    endpoint = ServerEndpoint.parse(text)
    assert (endpoint.host, endpoint.port) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "[::1]:0",
        "host:0",
        "host:",
        "host:70000",
        "host:12ab",
        "[host:1",
        "a b:1",
        "ftp://host:1",
        "http://",
        "h:1/x",
    ],
)
def test_what_cannot_work_is_refused_with_the_text_that_was_given(text: str) -> None:
    with pytest.raises(ValueError, match="endpoint") as caught:
        ServerEndpoint.parse(text)
    assert text.strip().removeprefix("http://") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "tls", "spoken"),
    [("host:1", False, False), ("host:1", True, True), ("http://host:1", True, False), ("https://host:1", False, True)],
)
def test_a_scheme_decides_about_tls_and_else_the_caller(text: str, tls: bool, spoken: bool) -> None:
    assert ServerEndpoint.parse(text, tls=tls).tls is spoken


def test_an_ipv6_endpoint_is_written_with_brackets() -> None:
    endpoint = ServerEndpoint(host="fd00::1", port=8443, tls=True)
    assert str(endpoint) == "https://[fd00::1]:8443"
    assert ServerEndpoint.parse(str(endpoint)) == endpoint
