import kopf
from kubernetes.aio.client.configuration import Configuration

from elasticjob.operator.ports import Body, Resource
from elasticjob.operator.settings import Settings
from elasticjob.operator.shell import build_registry, connection_info, kopf_settings


class NoFeed:
    def see(self, resource: Resource, event_type: str | None, body: Body) -> None:
        raise AssertionError("nothing is seen here")


async def connect() -> Configuration:
    return Configuration(host="https://api:6443")


def test_kopf_watches_and_does_nothing_else() -> None:
    registry = build_registry(NoFeed(), connect)
    assert {handler.id for handler in registry._watching.get_all_handlers()} == {
        "see-elasticjobs",
        "see-pods",
        "see-services",
        "see-poddisruptionbudgets",
    }
    for other in (registry._indexing, registry._spawning, registry._changing, registry._webhooks):
        assert list(other.get_all_handlers()) == []


def test_children_are_selected_by_the_server() -> None:
    selectors = kopf_settings(Settings()).watching.label_selectors
    assert sorted(selectors.values()) == ["elasticjob.dev/job-uid"] * 3


def test_no_trace_of_the_framework_is_left_in_objects_or_events() -> None:
    settings = kopf_settings(Settings())
    assert settings.persistence.finalizer == "elasticjob.dev/operator"
    assert settings.posting.enabled is False
    assert settings.peering.standalone is True
    assert settings.scanning.disabled is True


def test_the_framework_keeps_no_copies_of_objects() -> None:
    storage = kopf_settings(Settings()).persistence.diffbase_storage
    body = kopf.Body({"metadata": {"name": "digits-0-0"}, "spec": {"containers": []}})
    assert storage.build(body=body) == {}
    assert storage.fetch(body=body) is None


def test_credentials_are_those_of_the_client() -> None:
    configuration = Configuration(host="https://api:6443")
    configuration.api_key["BearerToken"] = "bearer secret"
    configuration.ssl_ca_cert = "/ca.crt"
    info = connection_info(configuration)
    assert (info.server, info.scheme, info.token, info.ca_path) == (
        "https://api:6443",
        "Bearer",
        "secret",
        "/ca.crt",
    )


def test_client_certificates_are_passed_on() -> None:
    configuration = Configuration(host="https://api:6443")
    configuration.cert_file, configuration.key_file = "/tls.crt", "/tls.key"
    info = connection_info(configuration)
    assert (info.certificate_path, info.private_key_path, info.token) == ("/tls.crt", "/tls.key", None)
