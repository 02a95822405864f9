"""Which API server and namespace a worker takes."""

import json
from pathlib import Path
from typing import Any

import pytest

from elasticjob.rendezvous.backends.extras import require
from elasticjob.rendezvous.backends.kubernetes_client import OfficialConfigMaps, connect
from elasticjob.rendezvous.errors import RendezvousConnectionError
from elasticjob.rendezvous.parameters import RendezvousParameters


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    def context(name: str, **more: str) -> dict[str, Any]:
        return {"name": name, "context": {"cluster": "c", "user": "u", **more}}

    path = tmp_path / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [context("first", namespace="train"), context("second")],
        "current-context": "first",
    }
    path.write_text(json.dumps(content))
    return str(path)


def parameters(endpoint: str = "", **options: Any) -> RendezvousParameters:
    return RendezvousParameters("kubernetes", endpoint, "run", 1, 1, **options)


def test_server_and_namespace_are_those_of_the_kubeconfig(kubeconfig: str) -> None:
    cluster = connect(parameters(kubeconfig=kubeconfig))
    assert (cluster.url, cluster.namespace, cluster.timeout) == ("https://api.example:6443", "train", 10)


def test_another_context_and_namespace_can_be_chosen(kubeconfig: str) -> None:
    assert connect(parameters(kubeconfig=kubeconfig, context="second")).namespace == "default"
    assert connect(parameters(kubeconfig=kubeconfig, namespace="mine")).namespace == "mine"


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("other", "https://other:443"),
        ("other:6443", "https://other:6443"),
        ("http://other:8001", "http://other:8001"),
        ("https://[fd00::1]:6443/", "https://[fd00::1]:6443"),
        ("fd00::1", "https://[fd00::1]:443"),
    ],
)
def test_an_endpoint_replaces_the_address_of_the_server(kubeconfig: str, endpoint: str, url: str) -> None:
    assert connect(parameters(endpoint, kubeconfig=kubeconfig)).url == url


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namespace": "Not/One"}, "namespace must be a DNS-1123 label of at most 63 characters, not 'Not/One'"),
        ({"namespace": "n" * 64}, "namespace must be"),
        ({"read_timeout": "0"}, "read_timeout must be a whole number from 1 to 3600, not '0'"),
        ({"kubeconfig": "/no/file"}, "kubeconfig must be the path of an existing file, not '/no/file'"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(kubeconfig: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        connect(parameters(**{"kubeconfig": kubeconfig, **options}))


def test_a_scheme_that_is_not_known_is_refused(kubeconfig: str) -> None:
    with pytest.raises(ValueError, match="scheme 'ftp'"):
        connect(parameters("ftp://other", kubeconfig=kubeconfig))


def test_a_context_that_does_not_exist_is_named(kubeconfig: str) -> None:
    with pytest.raises(RendezvousConnectionError, match=r"no configuration to reach .*third"):
        connect(parameters(kubeconfig=kubeconfig, context="third"))


def test_a_kubeconfig_that_is_none_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("just text")
    with pytest.raises(RendezvousConnectionError, match="no configuration to reach"):
        connect(parameters(kubeconfig=str(path)))


def test_a_pod_without_service_account_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(RendezvousConnectionError, match=r"no configuration to reach .*token"):
        connect(parameters())


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("\N{SUPERSCRIPT TWO}", 0.0), ("\N{ARABIC-INDIC DIGIT SEVEN}", 0.0), ("-1", 0.0), ("soon", 0.0)],
)
def test_a_pause_that_the_server_asks_for_is_read_and_anything_else_ignored(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch, header: str, seconds: float
) -> None:
    maps = OfficialConfigMaps(connect(parameters(kubeconfig=kubeconfig)))
    refused = require("kubernetes", needed_by="the test", extra="kubernetes").client.ApiException(status=429)
    refused.headers = {"Retry-After": header}

    def refuse(*arguments: object, **options: object) -> None:
        raise refused

    monkeypatch.setattr(maps._cluster.api, "call_api", refuse)
    with pytest.raises(RendezvousConnectionError) as caught:
        maps.read("digits-rendezvous")
    assert caught.value.retry_after == seconds
