"""Tokens signed by real keys, and every way in which one can be wrong."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, Key, OctKey, RSAKey

from elasticjob.operator.server import tokens
from elasticjob.operator.server.tokens import TokenVerifier, kid_of
from elasticjob.rendezvous.protocol import ErrorCode, ProtocolError

ISSUER, AUDIENCE = "https://kubernetes.default.svc", "elasticjob"
NOW = 1_796_000_000
RSA_KEY, OTHER_KEY = RSAKey.generate_key(2048), RSAKey.generate_key(2048)
EC_KEY = ECKey.generate_key("P-256")


def verifier(*more: dict[str, Any]) -> TokenVerifier:
    keys = [
        RSA_KEY.as_dict(kid="one", use="sig", alg="RS256"),
        EC_KEY.as_dict(kid="two", use="sig", alg="ES256"),
        *more,
    ]
    return TokenVerifier({"keys": keys}, issuer=ISSUER, audience=AUDIENCE)


def token(key: Key = RSA_KEY, *, kid: str = "one", algorithm: str = "RS256", **changes: Any) -> str:
    claims = {"iss": ISSUER, "aud": [AUDIENCE], "exp": NOW + 3600, "iat": NOW, "sub": "me", **changes}
    present = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": algorithm, "kid": kid}, present, key, algorithms=[algorithm])


def encoded(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def refusal(credential: str, of: TokenVerifier | None = None) -> str:
    with pytest.raises(ProtocolError) as refused:
        (of or verifier()).claims_of(credential, now=NOW)
    assert refused.value.code is ErrorCode.UNAUTHENTICATED
    return refused.value.message


@pytest.mark.parametrize(
    ("key", "kid", "algorithm"), [(RSA_KEY, "one", "RS256"), (EC_KEY, "two", "ES256")], ids=["RSA", "EC"]
)
def test_a_signed_token_is_believed(key: Key, kid: str, algorithm: str) -> None:
    known = verifier()
    for number in range(3):
        claims = known.claims_of(token(key, kid=kid, algorithm=algorithm, jti=str(number)), now=NOW)
        assert claims is not None
        assert (claims["sub"], claims["jti"]) == ("me", str(number))


@pytest.mark.parametrize("audience", [AUDIENCE, ["https://kubernetes.default.svc", AUDIENCE]])
def test_a_token_may_be_meant_for_one_audience_or_for_several(audience: object) -> None:
    assert verifier().claims_of(token(aud=audience), now=NOW) is not None


@pytest.mark.parametrize("first", [True, False], ids=["its header is new", "its header is known"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("iss", None),
        ("iss", "https://somebody.else"),
        ("iss", [ISSUER]),
        ("aud", None),
        ("aud", []),
        ("aud", ["https://kubernetes.default.svc"]),
        ("aud", AUDIENCE + "-of-somebody-else"),
        ("aud", {AUDIENCE: True}),
        ("exp", None),
        ("exp", NOW - 60),
        ("exp", str(NOW + 60)),
        ("exp", True),
        ("exp", float("nan")),
        ("nbf", NOW + 600),
        ("nbf", "soon"),
        ("iat", NOW + 600),
    ],
)
def test_a_token_that_is_not_meant_for_us_and_for_now_is_refused_by_the_claim(
    name: str, value: Any, first: bool
) -> None:
    known = verifier()
    if not first:
        known.claims_of(token(), now=NOW)
    assert refusal(token(**{name: value}), known).startswith(f"the claim {name} of the token must")


def test_clocks_may_differ_a_little() -> None:
    slow, fast = NOW - tokens.LEEWAY + 1, NOW + tokens.LEEWAY - 1
    assert verifier().claims_of(token(exp=slow, nbf=fast, iat=fast), now=NOW) is not None


def test_what_a_hostile_claim_says_is_cut() -> None:
    assert len(refusal(token(iss="x" * 5_000))) <= 512


@pytest.mark.parametrize("first", [True, False], ids=["its header is new", "its header is known"])
def test_a_forged_signature_is_refused(first: bool) -> None:
    known = verifier()
    if not first:
        known.claims_of(token(), now=NOW)
    assert refusal(token(OTHER_KEY), known) == "the signature of the token is wrong"


def test_claims_that_were_changed_are_refused() -> None:
    known, (header, _, signature) = verifier(), token().split(".")
    known.claims_of(token(), now=NOW)
    changed = encoded({"iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 3600, "sub": "somebody else"})
    assert refusal(f"{header}.{changed}.{signature}", known) == "the signature of the token is wrong"


def test_a_published_key_is_not_taken_for_a_shared_secret() -> None:
    refusal(token(OctKey.import_key("x" * 64), algorithm="HS256"))


def test_a_published_secret_is_not_used() -> None:
    secret = OctKey.import_key({"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "shared"})
    known = verifier(secret.as_dict(alg="HS256"))
    assert not known.knows("shared")
    assert known.claims_of(token(secret, kid="shared", algorithm="HS256"), now=NOW) is None


def test_a_token_without_a_signature_is_refused() -> None:
    refusal(f"{encoded({'alg': 'none', 'kid': 'one'})}.{token().split('.')[1]}.")


def test_a_key_is_used_with_the_algorithm_that_is_published_for_it_alone() -> None:
    refusal(token(algorithm="PS512"))


def test_claims_must_be_an_object() -> None:
    listed = jws.serialize_compact({"alg": "RS256", "kid": "one"}, b'["iss"]', RSA_KEY)
    assert refusal(listed) == "the claims of the token are no object"


@pytest.mark.parametrize(
    "header", [["alg"], "alg", None, 5, {}, {"kid": "one"}, {"alg": 1, "kid": "one"}, {"alg": ["RS256"], "kid": "one"}]
)
def test_a_header_that_says_nothing_of_use_is_refused(header: object) -> None:
    refusal(f"{encoded(header)}.e30.AA")


@pytest.mark.parametrize("junk", ["", "a", "a.b.c", "é" * 100, "..", "a.b.c.d", "x" * 16_000, "[" * 5_000 + ".b.c"])
def test_junk_is_refused(junk: str) -> None:
    refusal(junk)
    with pytest.raises(ProtocolError):
        kid_of(junk)


def test_a_token_of_a_key_that_is_not_known_is_left_to_others() -> None:
    unknown = token(OTHER_KEY, kid="three")
    assert verifier().claims_of(unknown, now=NOW) is None
    assert kid_of(unknown) == "three"


def test_keys_of_an_unknown_kind_are_left_out() -> None:
    known = verifier({"kty": "XYZ", "kid": "odd"}, {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"})
    assert known.has_keys
    assert not known.knows("odd")
    assert not known.knows("broken")


def test_the_headers_that_are_remembered_are_few_and_of_valid_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_HEADERS", 2)
    known = verifier()
    refusal(token(OTHER_KEY), known)
    assert not known._signers
    for number in range(5):
        header = {"alg": "RS256", "kid": "one", "typ": f"JWT{number}"}
        signed = jwt.encode(header, {"iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60}, RSA_KEY)
        assert known.claims_of(signed, now=NOW) is not None
    assert len(known._signers) == 2
