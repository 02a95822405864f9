"""Encodes answers: once what many callers get, and in little memory what a whole group gets at the same moment.

When a round forms, each of its n nodes is told all n members: 1,000 nodes get 80 MB, all in one moment. So the members
are encoded and compressed once for all, and what is the caller's own follows in a block of the same stream.
"""

import functools
import zlib
from dataclasses import dataclass

from elasticjob.rendezvous.protocol import HeartbeatAnswer, JoinFormed, Member, dumps

_CACHED_ROUNDS = 64
_WORTHWHILE = 1024
"""Bytes from which on members are compressed: less goes into one packet anyway."""
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


@dataclass(frozen=True, slots=True)
class Gzipped:
    """A body that is sent with the content coding gzip."""

    content: bytes


@functools.lru_cache(maxsize=1024)
def encode_heartbeat(answer: HeartbeatAnswer) -> bytes:
    """Nearly all members of a run get the same answer, again and again."""
    return dumps(answer.to_json())


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all members of a round are told: as it is, and as the beginning of a deflated stream with its checksum."""

    members: tuple[Member, ...]
    plain: bytes
    deflated: bytes
    checksum: int


class FormedAnswers:
    """Encodes what the members of formed rounds are told."""

    def __init__(self) -> None:
        self._known: dict[int, _Shared] = {}

    def encode(self, answer: JoinFormed, *, gzip: bool) -> bytes | Gzipped:
        """The answer for one member, compressed if its caller takes that and it is worthwhile."""
        shared = self._known.get(id(answer.members))
        if shared is None or shared.members is not answer.members:
            shared = self._add(answer.members)
        own = f'"state":"formed","round":{answer.round},"rank":{answer.rank},"worldSize":{answer.world_size}}}'.encode()
        if not gzip or len(shared.plain) < _WORTHWHILE:
            return shared.plain + own
        return Gzipped(_finish(shared, own))

    def _add(self, members: tuple[Member, ...]) -> _Shared:
        if len(self._known) >= _CACHED_ROUNDS:
            self._known.clear()
        plain = dumps({"members": [member.to_json() for member in members]})[:-1] + b","
        deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        # A full flush ends at a whole byte, and nothing that follows refers to what is before it.
        deflated = deflate.compress(plain) + deflate.flush(zlib.Z_FULL_FLUSH)
        shared = self._known[id(members)] = _Shared(members, plain, deflated, zlib.crc32(plain))
        return shared


def _finish(shared: _Shared, own: bytes) -> bytes:
    """A whole gzip file (RFC 1952); its last deflate block holds the caller's bytes as they are (RFC 1951, 3.2.4)."""
    size = len(own)
    block = b"\x01" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + own
    checksum = zlib.crc32(own, shared.checksum).to_bytes(4, "little")
    length = (len(shared.plain) + size).to_bytes(4, "little")
    return b"".join((_GZIP_HEAD, shared.deflated, block, checksum, length))
