"""How a run id, which is any text, becomes a key in etcd or the name of a Kubernetes object.

Invariants: different run ids never share a key or a name; no key leaves its prefix; ids that need no change keep
their look. Case is kept or hashed, never folded.
"""

import hashlib
import re

MAX_RUN_ID_BYTES = 1024
"""Longest accepted run id, in bytes of UTF-8."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
# etcd's v2 API hides keys that start with "_" from listings and resolves "." and ".." as in a path.
_NOT_FIRST = frozenset(b"_.")
_READABLE_LENGTH = 24
_DIGEST_LENGTH = 32


def check_run_id(run_id: str) -> str:
    """Return the run id if it can be used.

    Raises:
        ValueError: It is blank, too long or no valid Unicode; the message gives the limit.
    """
    if not run_id.strip():
        raise ValueError(f"run_id must be a non-empty string, not {run_id!r}")
    try:
        size = len(run_id.encode())
    except UnicodeEncodeError:
        raise ValueError(f"run_id is not valid Unicode: {run_id[:80]!r}") from None
    if size > MAX_RUN_ID_BYTES:
        raise ValueError(f"run_id has {size} bytes, at most {MAX_RUN_ID_BYTES} are allowed: {run_id[:40]!r}…")
    return run_id


def key_segment(run_id: str) -> str:
    """One segment of an etcd key: unusual bytes become `=XX`, all else stays.

    Raises:
        ValueError: The run id cannot be used.
    """
    return escape(check_run_id(run_id).encode())


def escape(data: bytes) -> str:
    """One segment of an etcd key for any bytes; different bytes give different segments."""
    return "".join(
        chr(byte) if byte in _PLAIN and not (at == 0 and byte in _NOT_FIRST) else f"={byte:02X}"
        for at, byte in enumerate(data)
    )


def object_name(run_id: str, *, prefix: str) -> str:
    """A DNS-1123 name of at most 63 characters if the prefix has at most 5, and 253 in any case.

    It holds a readable part and a digest of the whole id, which alone tells run ids apart.

    Raises:
        ValueError: The run id cannot be used.
    """
    digest = hashlib.sha256(check_run_id(run_id).encode()).hexdigest()[:_DIGEST_LENGTH]
    readable = re.sub(r"[^a-z0-9]+", "-", run_id.lower())[:_READABLE_LENGTH].strip("-")
    return "-".join(part for part in (prefix, readable, digest) if part)
