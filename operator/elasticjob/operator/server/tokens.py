"""Verifies tokens: JWTs that a cluster signs, by the keys that it publishes (RFC 7515, RFC 7519).

A cluster signs thousands of tokens with one key, and all of these have the same header. So a header is read and checked
once, when the first valid token has it; what is left for the others is the signature and the claims.
"""

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwa import JWSAlgModel
from joserfc.jwk import Key, import_key
from joserfc.registry import Header
from joserfc.util import urlsafe_b64decode

from elasticjob.rendezvous.protocol import ErrorCode, ProtocolError, shorten

log = logging.getLogger(__name__)

Claims: TypeAlias = Mapping[str, Any]

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")
"""Asymmetric ones only: with a symmetric algorithm a published key would be a secret."""
_KEY_TYPES = ("RSA", "EC")
"""The kinds of keys that these need."""
_SIGNATURES = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
LEEWAY = 10
"""Seconds by which the clocks of the API server and ours may differ."""
MAX_HEADERS = 16
"""How many headers of valid tokens are remembered."""


class TokenVerifier:
    """Verifies the tokens of one cluster.

    Args:
        published: The JSON Web Key Set (RFC 7517) of the cluster.
        issuer: Who must have issued a token.
        audience: For whom it must be meant, among others.
    """

    def __init__(self, published: Mapping[str, Any], *, issuer: str, audience: str) -> None:
        self._keys = _usable_keys(published)
        self._issuer = issuer
        self._audience = audience
        self._signers: dict[str, tuple[JWSAlgModel, Key]] = {}
        """By what key, and how, tokens with such a header are signed."""

    @property
    def has_keys(self) -> bool:
        """Whether anything can be verified at all."""
        return bool(self._keys)

    def knows(self, kid: str) -> bool:
        """Whether there is a key with this id."""
        return kid in self._keys

    def claims_of(self, token: str, *, now: float) -> Claims | None:
        """What the token claims, if it is valid; None if the key is not known that is said to have signed it.

        Args:
            now: The time of day, in seconds since 1970.

        Raises:
            ProtocolError: `unauthenticated`.
        """
        header, _, _ = token.partition(".")
        signer = self._signers.get(header) or self._signer_of(token)
        if signer is None:
            return None
        claims = _signed_claims(token, *signer)
        self._require(claims, now)
        if len(self._signers) < MAX_HEADERS:
            self._signers[header] = signer
        return claims

    def _signer_of(self, token: str) -> tuple[JWSAlgModel, Key] | None:
        header = _header_of(token)
        key = self._keys.get(_kid_of(header))
        if key is None:
            return None
        with _refusing():
            _SIGNATURES.check_header(header)
            algorithm = _SIGNATURES.get_alg(header["alg"])
            algorithm.check_key(key)
        return algorithm, key

    def _require(self, claims: Claims, now: float) -> None:
        """The token must be meant for us, and for now."""
        if claims.get("iss") != self._issuer:
            raise _wrong("iss", claims, f"must be {self._issuer}")
        audiences = claims.get("aud")
        if self._audience not in (audiences if isinstance(audiences, list) else [audiences]):
            raise _wrong("aud", claims, f"must name {self._audience}")
        if not (_is_time(claims.get("exp")) and claims["exp"] > now - LEEWAY):
            raise _wrong("exp", claims, f"must be later than now, {now:.0f}")
        for name in ("nbf", "iat"):
            if name in claims and not (_is_time(claims[name]) and claims[name] <= now + LEEWAY):
                raise _wrong(name, claims, f"must not be later than now, {now:.0f}")


def kid_of(token: str) -> str:
    """The id of the key that is said to have signed the token; empty if it says none.

    Raises:
        ProtocolError: `unauthenticated`, if it is no token.
    """
    return _kid_of(_header_of(token))


def unauthenticated(why: str) -> ProtocolError:
    """The refusal of a token."""
    return ProtocolError(ErrorCode.UNAUTHENTICATED, why)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Whatever cannot be read or does not hold is a reason to refuse the token."""
    try:
        yield
    except (JoseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise unauthenticated(f"the token cannot be verified: {error}") from error


def _header_of(token: str) -> Header:
    """The header of a token, not verified."""
    with _refusing():
        header: object = jws.extract_compact(token.encode(), registry=_SIGNATURES).headers()
    if not isinstance(header, dict):
        raise unauthenticated("the header of the token is no object")
    return header


def _kid_of(header: Header) -> str:
    return str(header.get("kid", ""))


def _signed_claims(token: str, algorithm: JWSAlgModel, key: Key) -> Claims:
    signed, _, signature = token.encode().rpartition(b".")
    with _refusing():
        if not algorithm.verify(signed, urlsafe_b64decode(signature), key):
            raise unauthenticated("the signature of the token is wrong")
        claims = json.loads(urlsafe_b64decode(signed.partition(b".")[2]))
    if not isinstance(claims, dict):
        raise unauthenticated("the claims of the token are no object")
    return claims


def _is_time(value: object) -> bool:
    """Whether it is a NumericDate. What is no number at all (NaN) fails every comparison."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(name: str, claims: Claims, why: str) -> ProtocolError:
    return unauthenticated(shorten(f"the claim {name} of the token {why}; it is {claims.get(name)!r}", 512))


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
