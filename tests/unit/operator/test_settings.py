from pathlib import Path

import pytest

from elasticjob.operator.settings import Settings, SettingsError, from_environment

NO_FILE = Path("/nonexistent")


def read(**variables: str) -> Settings:
    environ = {f"ELASTICJOB_OPERATOR_{name}": value for name, value in variables.items()}
    return from_environment(environ | {"HOME": "/root"}, namespace_file=NO_FILE)


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = read()
    assert settings == Settings()
    assert settings.scopes == (None,)
    assert settings.endpoint == "elasticjob-rendezvous.default.svc.cluster.local:8443"


def test_the_namespace_is_read_from_the_service_account(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("tenant\n")
    assert from_environment({}, namespace_file=file).namespace == "tenant"


def test_the_environment_wins_over_the_service_account(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("tenant")
    assert from_environment({"ELASTICJOB_OPERATOR_NAMESPACE": "mine"}, namespace_file=file).namespace == "mine"


def test_namespaces_are_split_trimmed_and_made_unique() -> None:
    settings = read(WATCH_NAMESPACES="a, b,,a")
    assert settings.scopes == ("a", "b")
    assert settings.serves("b")
    assert not settings.serves("c")


def test_an_empty_list_of_namespaces_means_the_whole_cluster() -> None:
    assert read(WATCH_NAMESPACES="").serves("any")


def test_words_are_read_as_users_write_them() -> None:
    settings = read(LOG_LEVEL="debug", RENDEZVOUS_TLS="False")
    assert (settings.log_level, settings.rendezvous_tls) == ("DEBUG", False)


def test_a_given_endpoint_is_taken_as_it_is() -> None:
    assert read(RENDEZVOUS_ENDPOINT="[fd00::1]:9000").endpoint == "[fd00::1]:9000"


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("LEASE_DURATION_SECONDS", "1", "must be from 2 to 3600"),
        ("LEASE_DURATION_SECONDS", "soon", "must be from 2 to 3600"),
        ("LEASE_DURATION_SECONDS", "nan", "must be from 2 to 3600"),
        ("RECONCILE_WORKERS", "0", "must be from 1 to 64"),
        ("RECONCILE_WORKERS", "1.5", "must be from 1 to 64"),
        ("HEALTH_PORT", "65536", "must be from 0 to 65535"),
        ("WATCH_NAMESPACES", "Team_A", "comma-separated list of namespace names"),
        ("RENDEZVOUS_ENDPOINT", "nohost", "must be host:port"),
        ("RENDEZVOUS_ENDPOINT", "fd00::1", "must be host:port"),
        ("RENDEZVOUS_TLS", "yes", "must be true or false"),
        ("LOG_FORMAT", "xml", "must be one of json, text"),
        ("LOG_LEVEL", "loud", "must be one of DEBUG, INFO, WARNING, ERROR"),
        ("IMAGE", "", "must be the name of an image"),
        ("NAMESPACE", "a.b", "must be the name of a namespace"),
        ("IMAGE_PULL_POLICY", "Sometimes", "must be one of Always, IfNotPresent, Never"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_limit(name: str, value: str, limit: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read(**{name: value})
    assert f"ELASTICJOB_OPERATOR_{name}" in str(refused.value)
    assert limit in str(refused.value)


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="ELASTICJOB_OPERATOR_LEASE_DURATION: there is no such setting"):
        read(LEASE_DURATION="15")


def test_the_longest_pause_cannot_be_shorter_than_the_first() -> None:
    with pytest.raises(SettingsError, match=r"RETRY_LIMIT_SECONDS: 1 must be at least .*RETRY_BASE_SECONDS \(2\)"):
        read(RETRY_BASE_SECONDS="2", RETRY_LIMIT_SECONDS="1")


def test_a_free_port_needs_an_endpoint_by_which_it_is_reached() -> None:
    with pytest.raises(SettingsError, match=r"RENDEZVOUS_ENDPOINT: must be given when .*RENDEZVOUS_PORT is 0"):
        read(RENDEZVOUS_PORT="0")
    assert read(RENDEZVOUS_PORT="0", RENDEZVOUS_ENDPOINT="here:9").endpoint == "here:9"
