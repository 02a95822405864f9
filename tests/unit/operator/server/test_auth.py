"""Who calls: what is verified here, what the API server is asked, and what is remembered."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import Key, RSAKey

from elasticjob.operator.constants import TOKEN_AUDIENCE as AUDIENCE
from elasticjob.operator.errors import Forbidden, Unavailable
from elasticjob.operator.ports import Body, Resource
from elasticjob.operator.resources import TOKEN_REVIEWS
from elasticjob.operator.server import auth
from elasticjob.operator.server.auth import Authenticator, Caller
from elasticjob.rendezvous.protocol import ErrorCode, ProtocolError

ISSUER = "https://kubernetes.default.svc"
RSA_KEY, OTHER_KEY = RSAKey.generate_key(2048), RSAKey.generate_key(2048)
ME = Caller(namespace="train", pod="digits-0-0", pod_uid="uid-0")


def published(**keys: Key) -> Body:
    algorithms = {"RSA": "RS256", "EC": "ES256"}
    return {"keys": [key.as_dict(kid=kid, use="sig", alg=algorithms[key.key_type]) for kid, key in keys.items()]}


class ApiServer:
    """Publishes keys and reviews tokens."""

    def __init__(self, **keys: Key) -> None:
        self.keys = published(**keys)
        self.reads = 0
        self.reviews = 0
        self.trouble: Exception | None = None
        self.review: Mapping[str, Any] = {"authenticated": False}
        self.review_trouble: Exception | None = None

    async def get_raw(self, path: str, *, timeout: float | None = None) -> Body:
        if self.trouble is not None:
            raise self.trouble
        if path == auth.DISCOVERY_PATH:
            return {"issuer": ISSUER}
        self.reads += 1
        return self.keys

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None, timeout: float | None = None
    ) -> Body:
        assert resource == TOKEN_REVIEWS
        assert body["spec"]["audiences"] == [AUDIENCE]
        self.reviews += 1
        if self.review_trouble is not None:
            raise self.review_trouble
        return {"status": self.review}


def token(key: Key = RSA_KEY, *, kid: str = "one", algorithm: str = "RS256", **changes: Any) -> str:
    claims = {
        "iss": ISSUER,
        "aud": [AUDIENCE],
        "exp": int(time.time()) + 3600,
        "sub": "system:serviceaccount:train:default",
        "kubernetes.io": {"namespace": "train", "pod": {"name": "digits-0-0", "uid": "uid-0"}},
        **changes,
    }
    present = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": algorithm, "kid": kid}, present, key, algorithms=[algorithm])


async def refusal(authenticator: Authenticator, credential: str) -> ProtocolError:
    with pytest.raises(ProtocolError) as refused:
        await authenticator.identify(credential)
    return refused.value


async def test_a_token_names_its_pod_without_a_call_for_each() -> None:
    server = ApiServer(one=RSA_KEY)
    authenticator = Authenticator(server)
    for number in range(5):
        assert await authenticator.identify(token(jti=str(number))) == ME
    assert (server.reads, server.reviews) == (1, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"kubernetes.io": None},
        {"kubernetes.io": "train"},
        {"kubernetes.io": {"namespace": "train"}},
        {"kubernetes.io": {"namespace": "train", "pod": {"name": "digits-0-0", "uid": ""}}},
        {"kubernetes.io": {"namespace": 7, "pod": {"name": "digits-0-0", "uid": "uid-0"}}},
    ],
)
async def test_a_token_that_is_bound_to_no_pod_is_refused(changes: dict[str, Any]) -> None:
    error = await refusal(Authenticator(ApiServer(one=RSA_KEY)), token(**changes))
    assert error.code is ErrorCode.UNAUTHENTICATED


@pytest.mark.parametrize("junk", ["", "a", "a.b.c", "é" * 100, "x" * 20_000, "..", "eyJhbGciOiJSUzI1NiJ9.e30.AA"])
async def test_junk_is_refused(junk: str) -> None:
    error = await refusal(Authenticator(ApiServer(one=RSA_KEY)), junk)
    assert error.code is ErrorCode.UNAUTHENTICATED


async def test_a_key_that_is_not_published_any_more_verifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ApiServer(one=RSA_KEY)
    authenticator = Authenticator(server)
    await authenticator.identify(token())
    server.keys = published(new=OTHER_KEY)
    monkeypatch.setattr(auth, "REFRESH_INTERVAL", 0.0)
    await authenticator.identify(token(OTHER_KEY, kid="new"))
    assert (await refusal(authenticator, token(jti="later"))).code is ErrorCode.UNAUTHENTICATED


async def test_new_keys_are_read_when_a_token_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ApiServer(one=RSA_KEY)
    authenticator = Authenticator(server)
    await authenticator.identify(token())
    server.keys = published(one=RSA_KEY, new=OTHER_KEY)
    monkeypatch.setattr(auth, "REFRESH_INTERVAL", 0.0)
    assert await authenticator.identify(token(OTHER_KEY, kid="new")) == ME


async def test_unknown_keys_cannot_make_the_operator_read_keys_again_and_again() -> None:
    server = ApiServer(one=RSA_KEY)
    authenticator = Authenticator(server)
    await authenticator.identify(token())
    for number in range(20):
        await refusal(authenticator, token(OTHER_KEY, kid=f"unknown-{number}"))
    assert (server.reads, server.reviews) == (1, 0)


async def test_a_refused_token_is_not_reviewed_again_at_once() -> None:
    server = ApiServer()
    server.trouble = Unavailable("down")
    authenticator = Authenticator(server)
    bad = token(OTHER_KEY, kid="unknown")
    for _ in range(5):
        await refusal(authenticator, bad)
    assert server.reviews == 1


async def test_without_published_keys_the_api_server_is_asked() -> None:
    server = ApiServer()
    server.trouble = Forbidden("no access to /openid/v1/jwks")
    server.review = {
        "authenticated": True,
        "audiences": [AUDIENCE],
        "user": {
            "username": "system:serviceaccount:train:default",
            "extra": {
                "authentication.kubernetes.io/pod-name": ["digits-0-0"],
                "authentication.kubernetes.io/pod-uid": ["uid-0"],
            },
        },
    }
    authenticator = Authenticator(server)
    for _ in range(3):
        assert await authenticator.identify(token()) == ME
    assert server.reviews == 1


@pytest.mark.parametrize(
    "review",
    [
        {"authenticated": False, "error": "expired"},
        {"authenticated": True, "audiences": ["other"], "user": {"username": "system:serviceaccount:train:default"}},
        {"authenticated": True, "audiences": [AUDIENCE], "user": {"username": "system:serviceaccount:train:default"}},
        {"authenticated": True, "audiences": [AUDIENCE], "user": {"username": "admin"}},
        {},
    ],
)
async def test_what_the_api_server_does_not_vouch_for_is_refused(review: Mapping[str, Any]) -> None:
    server = ApiServer()
    server.trouble, server.review = Unavailable("down"), review
    assert (await refusal(Authenticator(server), token())).code is ErrorCode.UNAUTHENTICATED


async def test_when_nobody_can_say_the_caller_is_asked_to_come_back() -> None:
    server = ApiServer()
    server.trouble = server.review_trouble = Unavailable("connection refused")
    authenticator = Authenticator(server)
    assert (await refusal(authenticator, token())).code is ErrorCode.NOT_READY
    server.review_trouble = None
    assert (await refusal(authenticator, token())).code is ErrorCode.UNAUTHENTICATED


async def test_the_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "MAX_CACHED", 4)
    authenticator = Authenticator(ApiServer(one=RSA_KEY))
    for number in range(10):
        await authenticator.identify(token(jti=str(number)))
        await refusal(authenticator, f"junk-{number}")
    assert len(authenticator._accepted) == len(authenticator._refused) == 4
