"""How answers become errors and objects become paths. The calls themselves are tested against a real API server."""

import pytest

from elasticjob.operator import errors
from elasticjob.operator.cluster import error_of, path
from elasticjob.operator.resources import JOBS, PODS


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Unavailable),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (413, "RequestEntityTooLarge", errors.Invalid),
        (422, "Invalid", errors.Invalid),
        (500, "InternalError", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
    ],
)
def test_each_refusal_has_its_type_and_keeps_the_words_of_the_api(
    status: int, reason: str, kind: type[errors.ClusterError]
) -> None:
    error = error_of(status, {"reason": reason, "message": "as the API says"})
    assert type(error) is kind
    assert (str(error), error.status, error.reason) == ("as the API says", status, reason)


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), (None, 1.0), ("Wed, 21 Oct 2026", 1.0), ("-3", 0.0)])
def test_the_pause_that_the_server_asks_for_is_read(header: str | None, seconds: float) -> None:
    error = error_of(429, {"message": "slow down"}, retry_after=header)
    assert isinstance(error, errors.TooManyRequests)
    assert error.retry_after == seconds


def test_an_answer_without_words_names_its_status() -> None:
    assert str(error_of(502, {})) == "HTTP 502"


def test_paths_are_those_of_the_api() -> None:
    assert path(PODS, "team", "a") == "/api/v1/namespaces/team/pods/a"
    assert path(PODS, None) == "/api/v1/pods"
    assert path(JOBS, "team", "a", "status") == ("/apis/elasticjob.dev/v1alpha1/namespaces/team/elasticjobs/a/status")


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert path(PODS, "team", "../secrets/x") == "/api/v1/namespaces/team/pods/..%2Fsecrets%2Fx"
