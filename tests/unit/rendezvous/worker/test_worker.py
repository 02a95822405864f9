"""What training processes are told about their round."""

import os
from pathlib import Path

import pytest

from elasticjob.rendezvous.worker import record_round


def test_the_round_is_in_the_environment_and_in_the_file_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICJOB_ROUND_FILE", str(tmp_path / "round"))
    monkeypatch.setenv("ELASTICJOB_ROUND", "0")
    for number in (3, 12):
        record_round(number)
        assert os.environ["ELASTICJOB_ROUND"] == str(number)
        assert (tmp_path / "round").read_text(encoding="ascii") == f"{number}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["round"]
