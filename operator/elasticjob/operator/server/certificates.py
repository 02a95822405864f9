"""The operator's own certificate authority, and the certificate that the rendezvous is served with.

Both are kept in one Secret in the operator's namespace. Tokens travel over these connections, so TLS is on by default,
and nothing else in the cluster is needed for it. `renewed` is the pure decision: what the Secret should hold now.

Rotation never breaks a running pod: pods get the whole bundle of authorities when they are made, the next authority
is in the bundle long before it signs anything, and the serving certificate is replaced when two thirds of its life are
over. A Secret that is deleted or damaged is written again by the leader that holds its content: a new authority would
cut off every running pod. Private keys are elliptic (P-256) and never leave the Secret and this process.
"""

import base64
import contextlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from elasticjob.operator import constants
from elasticjob.operator.errors import AlreadyExists, Conflict, NotFound
from elasticjob.operator.ports import Body, ClusterPort
from elasticjob.operator.resources import SECRETS

AUTHORITY_LIFE = timedelta(days=3650)
AUTHORITY_OVERLAP = timedelta(days=730)
"""When an authority has less left than this, the next one joins the bundle."""
AUTHORITY_REST = timedelta(days=365)
"""When an authority has less left than this, the next one signs."""
SERVING_LIFE = timedelta(days=90)
SERVING_REST = timedelta(days=30)
BACKDATE = timedelta(hours=1)
"""Certificates are valid from a little earlier, for machines whose clocks are slow."""
_ATTEMPTS = 5
_AUTHORITIES_CRT, _AUTHORITIES_KEY, _SERVING_CRT, _SERVING_KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
_PEM_END = b"-----END EC PRIVATE KEY-----\n"
_UNUSABLE = (
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What reading foreign keys and certificates raises."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )

    def rest(self, now: datetime) -> timedelta:
        """How long it is still valid."""
        return self.certificate.not_valid_after_utc - now


@dataclass(frozen=True, kw_only=True)
class Material:
    """What the Secret holds: authorities, the oldest first, and the serving certificate."""

    authorities: tuple[Pair, ...] = ()
    serving: Pair | None = None

    @property
    def bundle(self) -> str:
        """PEM of all authorities: what clients check the server against."""
        return b"".join(pair.pem for pair in self.authorities).decode()


def renewed(material: Material, names: Sequence[str], now: datetime) -> Material:
    """What should be held at `now`; the same object if nothing is to be done.

    Args:
        names: DNS names and IP addresses under which workers reach the server.
    """
    kept = tuple(pair for pair in material.authorities if pair.rest(now) > timedelta())
    if not kept or kept[-1].rest(now) < AUTHORITY_OVERLAP:
        kept = (*kept, _new_authority(now))
    signer = next((pair for pair in kept if pair.rest(now) > AUTHORITY_REST), kept[-1])
    serving = material.serving
    if serving is None or serving.rest(now) < SERVING_REST or not _fits(serving, signer, names):
        serving = _new_serving(signer, names, now)
    if kept == material.authorities and serving is material.serving:
        return material
    return replace(material, authorities=kept, serving=serving)


def to_data(material: Material) -> dict[str, str]:
    """The data of the Secret."""
    assert material.serving is not None
    values = {
        _AUTHORITIES_CRT: material.bundle.encode(),
        _AUTHORITIES_KEY: b"".join(pair.key_pem for pair in material.authorities),
        _SERVING_CRT: material.serving.pem,
        _SERVING_KEY: material.serving.key_pem,
    }
    return {name: base64.b64encode(value).decode() for name, value in values.items()}


def from_data(data: object) -> Material:
    """Read the data of the Secret. What cannot be read is left out, and so is made anew."""
    values = data if isinstance(data, Mapping) else {}
    material = Material()
    with contextlib.suppress(*_UNUSABLE):
        certificates = x509.load_pem_x509_certificates(_decoded(values[_AUTHORITIES_CRT]))
        keys = [part + _PEM_END for part in _decoded(values[_AUTHORITIES_KEY]).split(_PEM_END) if part]
        authorities = tuple(_pair(cert, key) for cert, key in zip(certificates, keys, strict=True))
        material = Material(authorities=authorities)
        serving = _pair(x509.load_pem_x509_certificate(_decoded(values[_SERVING_CRT])), _decoded(values[_SERVING_KEY]))
        material = replace(material, serving=serving)
    return material


class TlsKeeper:
    """Keeps the Secret, and an SSL context that follows it.

    Args:
        cluster: Reached as the leader: only the leader renews.
        names: DNS names and IP addresses under which workers reach the server.
        wall: The time of day in UTC.
    """

    def __init__(
        self, cluster: ClusterPort, *, namespace: str, name: str, names: Sequence[str], wall: Callable[[], datetime]
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._names = tuple(names)
        self._wall = wall
        self._material = Material()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """For the server; connections made after a renewal use the new certificate."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.num_tickets = 0

    @property
    def bundle(self) -> str:
        """PEM of the authorities, for worker pods; empty before the first `ensure`."""
        return self._material.bundle

    async def ensure(self) -> None:
        """Read the Secret, renew what is due, and load the certificate. To be called at start and every hour.

        Raises:
            ClusterError: The Secret cannot be read or written.
        """
        for _ in range(_ATTEMPTS):
            try:
                material = await self._ensure_once()
            except (AlreadyExists, Conflict, NotFound):
                continue
            if material != self._material:
                self._load(material)
                self._material = material
            return
        raise Conflict(f"Secret {self._namespace}/{self._name} is changed by somebody else all the time")

    async def _ensure_once(self) -> Material:
        try:
            found: Body | None = await self._cluster.get(SECRETS, namespace=self._namespace, name=self._name)
        except NotFound:
            found = None
        stored = Material() if found is None else from_data(found.get("data"))
        wanted = renewed(stored if stored.authorities else self._material, self._names, self._wall())
        if wanted is stored:
            return stored
        if found is None:
            await self._cluster.create(SECRETS, self._body(wanted), namespace=self._namespace)
        else:
            await self._cluster.replace(SECRETS, {**found, "data": to_data(wanted)})
        return wanted

    def _body(self, material: Material) -> Body:
        labels = {constants.LABEL_MANAGED_BY: constants.MANAGED_BY}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": self._name, "namespace": self._namespace, "labels": labels},
            "data": to_data(material),
        }

    def _load(self, material: Material) -> None:
        """The standard library reads certificates from files only; this one is ours alone and gone at once."""
        assert material.serving is not None
        descriptor, path = tempfile.mkstemp()
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(material.serving.key_pem + material.serving.pem)
            self.context.load_cert_chain(path)
        finally:
            os.unlink(path)  # noqa: PTH108 - a path of the standard library


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _pair(certificate: x509.Certificate, key_pem: bytes) -> Pair:
    key = serialization.load_pem_private_key(key_pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError("the key does not belong to the certificate")
    return Pair(certificate=certificate, key=key)


def _fits(serving: Pair, signer: Pair, names: Sequence[str]) -> bool:
    try:
        serving.certificate.verify_directly_issued_by(signer.certificate)
        extension = serving.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (*_UNUSABLE, InvalidSignature, x509.ExtensionNotFound):
        return False
    return set(extension.value) >= set(_alternative_names(names))


def _new_authority(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Two authorities with one name would be mistaken for each other while both are in the bundle.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"elasticjob rendezvous authority {serial:x}"[:64])])
    usage = _key_usage(signs_certificates=True)
    builder = (
        _builder(name, name, key, now, AUTHORITY_LIFE, serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(certificate=builder.sign(key, hashes.SHA256()), key=key)


def _new_serving(signer: Pair, names: Sequence[str], now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elasticjob rendezvous")])
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        _builder(name, signer.certificate.subject, key, now, SERVING_LIFE, x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(names)), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    return Pair(certificate=builder.sign(signer.key, hashes.SHA256()), key=key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    life: timedelta,
    serial: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + life)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(names: Sequence[str]) -> list[x509.GeneralName]:
    made: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            made.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            made.append(x509.DNSName(name))
    return made
