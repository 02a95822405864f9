"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.paths import cache_dir


def test_the_project_variable_comes_first_then_the_user_cache_then_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("ELASTICJOB_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("ELASTICJOB_CACHE")
    assert cache_dir() == tmp_path / "xdg" / "elasticjob"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == tmp_path / "home" / ".cache" / "elasticjob"
