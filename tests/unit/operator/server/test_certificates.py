"""Certificates: made once, renewed in time, without ever breaking a client that holds an older bundle."""

import asyncio
import base64
import ssl
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from elasticjob.operator.errors import AlreadyExists, Conflict, NotFound, Unavailable
from elasticjob.operator.hosting.compose import HostedRendezvous, ServerParts, Trust
from elasticjob.operator.hosting.half import HostContext
from elasticjob.operator.leadership.elector import Leadership
from elasticjob.operator.metrics import Metrics
from elasticjob.operator.ports import Body
from elasticjob.operator.server.certificates import Material, TlsKeeper, from_data, renewed, to_data
from elasticjob.operator.server.server import RendezvousHttpServer
from elasticjob.operator.settings import Settings
from elasticjob.rendezvous.client import HostedRendezvousClient
from elasticjob.rendezvous.endpoint import ServerEndpoint
from elasticjob.rendezvous.protocol import LeaveOutcome
from tests.unit.operator.fakes import FakeClock
from tests.unit.operator.hosted import RUN, Setting, TokensAreUids, orders, serving

NOW = datetime.now(timezone.utc)
NAMES = ("elasticjob-rendezvous.system.svc", "127.0.0.1", "fd00::1")


class Secrets:
    """Secrets with versions, of which another writer may change one in between."""

    def __init__(self) -> None:
        self.stored: Body | None = None
        self.version = 0
        self.writes = 0
        self.others: list[Body] = []

    async def get(self, resource: object, *, namespace: str | None, name: str, timeout: float | None = None) -> Body:
        if self.stored is None:
            raise NotFound("no such secret")
        return {**self.stored, "metadata": {**self.stored["metadata"], "resourceVersion": str(self.version)}}

    async def create(
        self, resource: object, body: Body, *, namespace: str | None, timeout: float | None = None
    ) -> Body:
        self._let_others_write()
        if self.stored is not None:
            raise AlreadyExists("exists")
        return self._write(body)

    async def replace(
        self, resource: object, body: Body, *, subresource: str = "", timeout: float | None = None
    ) -> Body:
        self._let_others_write()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("changed")
        return self._write(body)

    def _let_others_write(self) -> None:
        if self.others:
            self._write(self.others.pop())

    def _write(self, body: Body) -> Body:
        self.stored, self.version, self.writes = body, self.version + 1, self.writes + 1
        return body


def keeper(secrets: Secrets, *, at: datetime = NOW) -> TlsKeeper:
    cluster: Any = secrets
    return TlsKeeper(cluster, namespace="system", name="elasticjob-tls", names=NAMES, wall=lambda: at)


async def shake_hands(server: TlsKeeper, bundle: str, name: str = "127.0.0.1") -> bytes:
    """Connect as a client that trusts the bundle. Returns the certificate that the server has shown."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    context = ssl.create_default_context(cadata=bundle)
    listening = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server.context)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        try:
            assert await reader.read() == b"hello"
            shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return shown
        finally:
            writer.close()


async def test_workers_that_hold_the_bundle_trust_the_server_under_each_name() -> None:
    server = keeper(Secrets())
    await server.ensure()
    for name in NAMES:
        await shake_hands(server, server.bundle, name)


async def test_another_authority_or_name_is_not_trusted() -> None:
    server, other = keeper(Secrets()), keeper(Secrets())
    await server.ensure()
    await other.ensure()
    for bundle, name in ((other.bundle, "127.0.0.1"), (server.bundle, "elsewhere.svc")):
        with pytest.raises(ssl.SSLCertVerificationError):
            await shake_hands(server, bundle, name)


async def test_a_second_operator_uses_what_the_first_has_made() -> None:
    secrets = Secrets()
    first, second = keeper(secrets), keeper(secrets)
    await first.ensure()
    await second.ensure()
    await second.ensure()
    assert first.bundle == second.bundle
    assert secrets.writes == 1
    await shake_hands(second, first.bundle)


async def test_two_that_begin_at_once_agree() -> None:
    secrets, earlier = Secrets(), Secrets()
    first = keeper(earlier)
    await first.ensure()
    assert earlier.stored is not None
    secrets.others.append(earlier.stored)
    second = keeper(secrets)
    await second.ensure()
    assert second.bundle == first.bundle


async def test_the_serving_certificate_is_renewed_for_clients_that_hold_the_old_bundle() -> None:
    secrets = Secrets()
    before = keeper(secrets)
    await before.ensure()
    later = keeper(secrets, at=NOW + timedelta(days=61))
    await later.ensure()
    assert secrets.writes == 2
    assert later.bundle == before.bundle


class Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def wall(self) -> datetime:
        return self.now


def served(secrets: Secrets, clock: Clock) -> TlsKeeper:
    cluster: Any = secrets
    return TlsKeeper(cluster, namespace="system", name="elasticjob-tls", names=NAMES, wall=clock.wall)


async def test_a_renewal_disturbs_no_call_that_is_held_and_no_client_with_the_old_bundle() -> None:
    clock = Clock(NOW - timedelta(days=61))
    server = served(Secrets(), clock)
    await server.ensure()
    old, bundle = server._material.serving, server.bundle
    setting = Setting(server_tls=server.context, client_tls=ssl.create_default_context(cadata=bundle))
    async with serving(setting, orders(2)) as hosted:
        held = asyncio.create_task(hosted.join("uid-0"))
        await hosted.viewed(lambda view: any(node.joined for node in view.waiting))
        clock.now = NOW
        await server.ensure()
        assert server._material.serving not in (None, old)
        assert (await hosted.join("uid-1"))[0] == 200
        assert (await held)[0] == 200
    assert await shake_hands(server, bundle) == pem_to_der(server)


@pytest.mark.parametrize("damage", ["deleted", "emptied", "of unknown algorithms"])
@pytest.mark.parametrize("days", [0, 61])
async def test_a_leader_keeps_its_authority_when_the_secret_is_lost(damage: str, days: int) -> None:
    secrets, clock = Secrets(), Clock(NOW - timedelta(days=days))
    server = served(secrets, clock)
    await server.ensure()
    assert secrets.stored is not None
    bundle, whole = server.bundle, secrets.stored
    data = {"deleted": None, "emptied": {}, "of unknown algorithms": of_unknown_algorithm(whole["data"])}[damage]
    secrets.stored = None if data is None else {**whole, "data": data}
    clock.now = NOW
    await server.ensure()
    assert server.bundle == bundle
    assert await shake_hands(server, bundle) == pem_to_der(server)
    assert secrets.stored is not None
    assert from_data(secrets.stored["data"]).bundle == bundle


def pem_to_der(server: TlsKeeper) -> bytes:
    assert server._material.serving is not None
    return ssl.PEM_cert_to_DER_cert(server._material.serving.pem.decode())


def of_unknown_algorithm(data: dict[str, str]) -> dict[str, str]:
    """The same, but the authority's key is of a kind that nobody knows."""
    der = ssl.PEM_cert_to_DER_cert(base64.b64decode(data["ca.crt"]).decode())
    elliptic = bytes.fromhex("06072a8648ce3d0201")
    assert elliptic in der
    pem = ssl.DER_cert_to_PEM_cert(der.replace(elliptic, elliptic[:-1] + b"\x7f"))
    return {**data, "ca.crt": base64.b64encode(pem.encode()).decode()}


def test_an_authority_of_an_unknown_algorithm_is_made_anew() -> None:
    data = to_data(renewed(Material(), NAMES, NOW))
    assert from_data(of_unknown_algorithm(data)) == Material()


def test_a_damaged_serving_certificate_costs_no_authority() -> None:
    material = renewed(Material(), NAMES, NOW)
    for damage in ({"tls.crt": "!!"}, {"tls.key": ""}):
        read = from_data(to_data(material) | damage)
        assert (read.bundle, read.serving) == (material.bundle, None)


def test_a_serving_certificate_that_says_a_thing_twice_is_made_anew() -> None:
    material = renewed(Material(), NAMES, NOW)
    assert material.serving is not None
    signer = material.authorities[0]
    # The key usage is called a second subject alternative name, and the whole is signed again.
    body = material.serving.certificate.tbs_certificate_bytes.replace(b"\x55\x1d\x0f", b"\x55\x1d\x11")
    signature = signer.key.sign(body, ec.ECDSA(hashes.SHA256()))
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")
    whole = body + algorithm + b"\x03" + bytes([len(signature) + 1, 0]) + signature
    twice = x509.load_der_x509_certificate(b"\x30\x82" + len(whole).to_bytes(2, "big") + whole)
    twice.verify_directly_issued_by(signer.certificate)
    damaged = replace(material, serving=replace(material.serving, certificate=twice))
    assert renewed(damaged, NAMES, NOW).serving != damaged.serving


@pytest.mark.parametrize("trouble", [Unavailable("no answer"), UnsupportedAlgorithm("a key of tomorrow")])
async def test_the_renewal_goes_on_after_any_trouble(trouble: Exception) -> None:
    secrets, clock, trust = Troubled(), Clock(NOW - timedelta(days=61)), Trust()
    server = served(secrets, clock)
    await server.ensure()
    old, secrets.trouble, clock.now = server._material.serving, trouble, NOW
    context = HostContext(
        settings=Settings(),
        epoch=1,
        installation="lease-1",
        leadership=Leadership(FakeClock()),
        holds_lease=_holds,
        on_change=lambda namespace, job: None,
    )
    half = HostedRendezvous(context, ServerParts(metrics=Metrics(), trust=trust, renewal_interval=0.001))
    renewal = asyncio.create_task(half._renew(server))
    async with asyncio.timeout(10):
        while server._material.serving == old:
            assert not renewal.done()
            await asyncio.sleep(0.001)
    renewal.cancel()
    assert secrets.trouble is None
    assert trust.bundle() == server.bundle


async def _holds() -> bool:
    return True


class Troubled(Secrets):
    """Fails once when told to."""

    trouble: Exception | None = None

    async def get(self, resource: object, *, namespace: str | None, name: str, timeout: float | None = None) -> Body:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        return await super().get(resource, namespace=namespace, name=name, timeout=timeout)


@pytest.mark.parametrize("damage", [None, {}, {"tls.crt": "!!"}, {"ca.crt": "aGVsbG8="}, {"ca.crt": 7}])
async def test_a_damaged_secret_is_made_anew(damage: object) -> None:
    secrets = Secrets()
    secrets.stored = {"metadata": {"name": "elasticjob-tls"}, "data": damage}
    server = keeper(secrets)
    await server.ensure()
    await shake_hands(server, server.bundle)


async def test_the_worker_library_joins_by_tls(tmp_path: Path) -> None:
    tls = keeper(Secrets())
    await tls.ensure()
    (tmp_path / "ca.crt").write_text(tls.bundle)
    (tmp_path / "token").write_text("uid-0")
    async with serving(None, orders(1)) as hosted:
        await hosted.viewed(lambda view: not view.failed)
        server = RendezvousHttpServer(
            hosted.host, TokensAreUids(), port=0, address="127.0.0.1", ssl_context=tls.context
        )
        await server.start()
        client = HostedRendezvousClient(
            endpoint=ServerEndpoint(host="127.0.0.1", port=server.port, tls=True),
            run_id=RUN,
            address="10.0.0.1",
            token_file=tmp_path / "token",
            ca_file=tmp_path / "ca.crt",
        )
        assert (await asyncio.to_thread(client.join)).round == 1
        await asyncio.to_thread(client.leave, LeaveOutcome.SUCCEEDED)
        client._http.close()
        await server.stop(grace=0.1)


def test_nothing_is_renewed_without_need() -> None:
    material = renewed(Material(), NAMES, NOW)
    assert renewed(material, NAMES, NOW + timedelta(days=59)) is material
    assert from_data(to_data(material)).bundle == material.bundle


def test_a_new_name_gets_a_new_certificate_from_the_same_authority() -> None:
    material = renewed(Material(), NAMES, NOW)
    wider = renewed(material, (*NAMES, "other.svc"), NOW)
    assert wider.authorities == material.authorities
    assert wider.serving != material.serving


def test_the_next_authority_is_known_to_clients_long_before_it_signs() -> None:
    day = timedelta(days=1)
    material = renewed(Material(), NAMES, NOW)
    known: dict[bytes, int] = {}
    for number in range(0, 20 * 365, 20):
        now = NOW + number * day
        material = renewed(material, NAMES, now)
        assert material.serving is not None
        for pair in material.authorities:
            known.setdefault(pair.pem, number)
        signer = next(p for p in material.authorities if p.certificate.subject == material.serving.certificate.issuer)
        assert number == 0 or number - known[signer.pem] >= 300 or known[signer.pem] == 0
        assert material.serving.rest(now) > 29 * day
        assert signer.rest(now) > material.serving.rest(now)
        assert len(material.authorities) <= 2
