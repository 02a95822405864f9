"""Who calls: turns the bearer token of a worker pod into the identity of that pod.

Workers send a projected ServiceAccount token that is bound to their pod and to our audience. It is a signed JWT, so it
is verified here, against the keys that the cluster publishes; no call to the API server is needed for it. Where these
keys cannot be had, the API server is asked (TokenReview). Verified tokens are remembered until they expire, refused
ones for a moment, both in bounded caches keyed by a hash, so a call costs a hash and a lookup.

Whether the pod is alive, and which run it belongs to, is not a matter of its token: the rendezvous host decides that
from what the operator sees.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import Key, import_key
from joserfc.jwt import JWTClaimsRegistry

from elasticjob.operator.constants import TOKEN_AUDIENCE
from elasticjob.operator.errors import ClusterError
from elasticjob.operator.ports import Body, Resource
from elasticjob.operator.resources import TOKEN_REVIEWS
from elasticjob.rendezvous.protocol import ErrorCode, ProtocolError

log = logging.getLogger(__name__)

DISCOVERY_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"

MAX_TOKEN = 16 * 1024
MAX_CACHED = 16_384
ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")
"""Asymmetric ones only: with a symmetric algorithm a published key would be a secret."""
_KEY_TYPES = ("RSA", "EC")
"""The kinds of keys that these need."""
_SIGNATURES = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
LEEWAY = 10
"""Seconds by which the clocks of the API server and ours may differ."""
REFRESH_INTERVAL = 10.0
"""Shortest time in seconds between two reads of the published keys."""
REFUSED_FOR = 10.0
"""Seconds for which a refused token is not looked at again."""
REVIEWED_FOR = 60.0
"""Seconds for which the word of the API server on a token holds."""
REVIEWS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The pod that a token speaks for."""

    namespace: str
    pod: str
    pod_uid: str


class Issuer(Protocol):
    """What is needed of the API server; `ClusterPort` has it."""

    async def get_raw(self, path: str, *, timeout: float | None = None) -> Body:
        """Read a non-resource URL."""

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None, timeout: float | None = None
    ) -> Body:
        """Create an object."""


class Authenticator:
    """Verifies tokens. Belongs to one event loop."""

    def __init__(self, issuer: Issuer, *, audience: str = TOKEN_AUDIENCE) -> None:
        self._issuer = issuer
        self._audience = audience
        self._accepted: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._keys: Mapping[str, Key] = {}
        self._claims = _claims_of("", audience)
        self._refreshed_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._reviewing = asyncio.Semaphore(REVIEWS_AT_ONCE)

    def recognize(self, token: str) -> Caller | None:
        """The pod that the token speaks for; None if the API server has to be asked.

        Raises:
            ProtocolError: `unauthenticated`.
        """
        if not token or len(token) > MAX_TOKEN:
            raise _unauthenticated("there is no bearer token of a sensible length")
        digest = _digest(token)
        known = self._accepted.get(digest)
        if known is not None and known[1] > time.time():
            return known[0]
        why, until = self._refused.get(digest, ("", 0.0))
        if until > time.monotonic():
            raise _unauthenticated(why)
        with self._remembering(digest):
            signed = _read(token)
            key = self._keys.get(_kid_of(signed))
            if key is None:
                return None
            claims = self._verified(signed, key)
            caller = _caller_of(claims)
        _remember(self._accepted, digest, (caller, float(claims["exp"])))
        return caller

    async def identify(self, token: str) -> Caller:
        """The pod that the token speaks for. Asks the API server for its keys, or about the token, if need be.

        Raises:
            ProtocolError: `unauthenticated`, if the token is not valid; `not-ready`, if that cannot be found out now.
        """
        caller = self.recognize(token)
        if caller is not None:
            return caller
        kid = _kid_of(_read(token))
        await self._refresh(kid)
        caller = self.recognize(token)
        if caller is not None:
            return caller
        digest = _digest(token)
        with self._remembering(digest):
            if self._keys:
                raise _unauthenticated(f"the cluster publishes no key {kid[:64]!r}")
            caller = await self._review(token)
        _remember(self._accepted, digest, (caller, time.time() + REVIEWED_FOR))
        return caller

    @contextlib.contextmanager
    def _remembering(self, digest: bytes) -> Iterator[None]:
        """A refused token is not looked at again for a while."""
        try:
            yield
        except ProtocolError as refusal:
            if refusal.code is ErrorCode.UNAUTHENTICATED:
                _remember(self._refused, digest, (refusal.message, time.monotonic() + REFUSED_FOR))
            raise

    def _verified(self, signed: jws.CompactSignature, key: Key) -> Mapping[str, Any]:
        """The claims of a token, if they are signed with the key, and are meant for us and for now."""
        try:
            if not jws.validate_compact(signed, key, registry=_SIGNATURES):
                raise _unauthenticated("the signature is wrong")
            claims = json.loads(signed.payload)
            if not isinstance(claims, dict):
                raise _unauthenticated("the claims of the token are no object")
            self._claims.validate(claims)
        except (JoseError, ValueError, RecursionError) as error:
            raise _unauthenticated(str(error)) from error
        return claims

    async def _refresh(self, kid: str) -> None:
        async with self._refreshing:
            if kid in self._keys or time.monotonic() - self._refreshed_at < REFRESH_INTERVAL:
                return
            self._refreshed_at = time.monotonic()
            try:
                discovery = await self._issuer.get_raw(DISCOVERY_PATH)
                published = await self._issuer.get_raw(KEYS_PATH)
            except ClusterError as error:
                log.warning("The cluster's token keys cannot be read, tokens are reviewed instead: %s", error)
                return
            self._claims = _claims_of(str(discovery.get("issuer", "")), self._audience)
            self._keys = _usable_keys(published)

    async def _review(self, token: str) -> Caller:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        async with self._reviewing:
            try:
                answer = await self._issuer.create(TOKEN_REVIEWS, body, namespace=None)
            except ClusterError as error:
                why = f"the keys of the cluster cannot be read, and a review failed: {error}"
                raise ProtocolError(ErrorCode.NOT_READY, why) from error
        status = answer.get("status") or {}
        if not status.get("authenticated") or self._audience not in (status.get("audiences") or ()):
            raise _unauthenticated(str(status.get("error") or "the API server does not accept this token"))
        return _caller_of_review(status)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _read(token: str) -> jws.CompactSignature:
    """The token, not verified."""
    try:
        return jws.extract_compact(token.encode(), registry=_SIGNATURES)
    except (JoseError, ValueError, RecursionError) as error:
        raise _unauthenticated("this is no token") from error


def _kid_of(signed: jws.CompactSignature) -> str:
    """The id of the key that is said to have signed the token."""
    return str(signed.headers().get("kid", ""))


def _claims_of(issuer: str, audience: str) -> JWTClaimsRegistry:
    """What the claims of a token must be."""
    return JWTClaimsRegistry(
        leeway=LEEWAY,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": audience},
        exp={"essential": True},
    )


def _usable_keys(published: Mapping[str, Any]) -> dict[str, Key]:
    """The published keys by id; kinds that are not known here, and secrets, are left out."""
    keys: dict[str, Key] = {}
    for entry in published.get("keys") or ():
        if not isinstance(entry, dict) or entry.get("kty") not in _KEY_TYPES:
            continue
        try:
            key = import_key(entry)
        except (JoseError, ValueError, TypeError) as error:
            log.warning("A token key of the cluster cannot be used: %s", error)
            continue
        if key.kid:
            keys[key.kid] = key
    return keys


def _caller_of(claims: Mapping[str, Any]) -> Caller:
    bound = claims.get("kubernetes.io")
    pod = bound.get("pod") if isinstance(bound, dict) else None
    if not isinstance(bound, dict) or not isinstance(pod, dict):
        raise _unauthenticated("the token is not bound to a pod")
    return _caller(bound.get("namespace"), pod.get("name"), pod.get("uid"))


def _caller_of_review(status: Mapping[str, Any]) -> Caller:
    user = status.get("user") or {}
    extra = user.get("extra") or {}
    account = str(user.get("username", "")).split(":")
    namespace = account[2] if len(account) == 4 and account[:2] == ["system", "serviceaccount"] else None
    pod = (extra.get("authentication.kubernetes.io/pod-name") or [None])[0]
    uid = (extra.get("authentication.kubernetes.io/pod-uid") or [None])[0]
    return _caller(namespace, pod, uid)


def _caller(namespace: object, pod: object, uid: object) -> Caller:
    if not (isinstance(namespace, str) and isinstance(pod, str) and isinstance(uid, str) and namespace and pod and uid):
        raise _unauthenticated("the token is not bound to a pod")
    return Caller(namespace=namespace, pod=pod, pod_uid=uid)


def _unauthenticated(why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.UNAUTHENTICATED, why)


def _remember(cache: OrderedDict[bytes, Any], digest: bytes, value: object) -> None:
    cache[digest] = value
    while len(cache) > MAX_CACHED:
        cache.popitem(last=False)
