"""Who calls: turns the bearer token of a worker pod into the identity of that pod.

Workers send a projected ServiceAccount token that is bound to their pod and to our audience. It is a signed JWT, so it
is verified here, against the keys that the cluster publishes; no call to the API server is needed for it. Where these
keys cannot be had, the API server is asked (TokenReview). Verified tokens are remembered until they expire, refused
ones for a moment, both in bounded caches keyed by a hash, so a call costs a hash and a lookup.

Whether the pod is alive, and which run it belongs to, is not a matter of its token: the rendezvous host decides that
from what the operator sees.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from elasticjob.operator.constants import TOKEN_AUDIENCE
from elasticjob.operator.errors import ClusterError
from elasticjob.operator.ports import Body, Resource
from elasticjob.operator.resources import TOKEN_REVIEWS
from elasticjob.operator.server.tokens import TokenVerifier, kid_of, unauthenticated
from elasticjob.rendezvous.protocol import ErrorCode, ProtocolError

log = logging.getLogger(__name__)

DISCOVERY_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"

MAX_TOKEN = 16 * 1024
MAX_CACHED = 16_384
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
        self._verifier = TokenVerifier({}, issuer="", audience=audience)
        self._refreshed_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._reviewing = asyncio.Semaphore(REVIEWS_AT_ONCE)

    def recognize(self, token: str) -> Caller | None:
        """The pod that the token speaks for; None if the API server has to be asked.

        Raises:
            ProtocolError: `unauthenticated`.
        """
        if not token or len(token) > MAX_TOKEN:
            raise unauthenticated("there is no bearer token of a sensible length")
        digest = _digest(token)
        known = self._accepted.get(digest)
        if known is not None and known[1] > time.time():
            return known[0]
        why, until = self._refused.get(digest, ("", 0.0))
        if until > time.monotonic():
            raise unauthenticated(why)
        try:
            return self._verify(token, digest)
        except ProtocolError as refusal:
            self._note_refusal(digest, refusal)
            raise

    async def identify(self, token: str) -> Caller:
        """The pod that the token speaks for. Asks the API server for its keys, or about the token, if need be.

        Raises:
            ProtocolError: `unauthenticated`, if the token is not valid; `not-ready`, if that cannot be found out now.
        """
        caller = self.recognize(token)
        if caller is not None:
            return caller
        kid = kid_of(token)
        await self._refresh(kid)
        caller = self.recognize(token)
        if caller is not None:
            return caller
        digest = _digest(token)
        try:
            if self._verifier.has_keys:
                raise unauthenticated(f"the cluster publishes no key {kid[:64]!r}")
            caller = await self._review(token)
        except ProtocolError as refusal:
            self._note_refusal(digest, refusal)
            raise
        _remember(self._accepted, digest, (caller, time.time() + REVIEWED_FOR))
        return caller

    def _note_refusal(self, digest: bytes, refusal: ProtocolError) -> None:
        """A refused token is not looked at again for a while."""
        if refusal.code is ErrorCode.UNAUTHENTICATED:
            _remember(self._refused, digest, (refusal.message, time.monotonic() + REFUSED_FOR))

    def _verify(self, token: str, digest: bytes) -> Caller | None:
        claims = self._verifier.claims_of(token, now=time.time())
        if claims is None:
            return None
        caller = _caller_of(claims)
        _remember(self._accepted, digest, (caller, claims["exp"]))
        return caller

    async def _refresh(self, kid: str) -> None:
        async with self._refreshing:
            if self._verifier.knows(kid) or time.monotonic() - self._refreshed_at < REFRESH_INTERVAL:
                return
            self._refreshed_at = time.monotonic()
            try:
                discovery = await self._issuer.get_raw(DISCOVERY_PATH)
                published = await self._issuer.get_raw(KEYS_PATH)
            except ClusterError as error:
                log.warning("The cluster's token keys cannot be read, tokens are reviewed instead: %s", error)
                return
            issuer = str(discovery.get("issuer", ""))
            self._verifier = TokenVerifier(published, issuer=issuer, audience=self._audience)

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
            raise unauthenticated(str(status.get("error") or "the API server does not accept this token"))
        return _caller_of_review(status)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _caller_of(claims: Mapping[str, Any]) -> Caller:
    bound = claims.get("kubernetes.io")
    pod = bound.get("pod") if isinstance(bound, dict) else None
    if not isinstance(bound, dict) or not isinstance(pod, dict):
        raise unauthenticated("the token is not bound to a pod")
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
        raise unauthenticated("the token is not bound to a pod")
    return Caller(namespace=namespace, pod=pod, pod_uid=uid)


def _remember(cache: OrderedDict[bytes, Any], digest: bytes, value: object) -> None:
    cache[digest] = value
    while len(cache) > MAX_CACHED:
        cache.popitem(last=False)
