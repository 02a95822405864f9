"""The one error of the test cluster: its message says what failed, with which value, and what to do."""

from __future__ import annotations


class ClusterError(Exception):
    """Something that the cluster needs is missing, did not start, or did not become ready in time."""
