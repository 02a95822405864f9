"""The directory that images of training jobs get the library from."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from elasticjob.rendezvous import inject as inject_module
from elasticjob.rendezvous.inject import inject, main

LOOK = """
import importlib.metadata, sys
points = importlib.metadata.entry_points(group="torchrun.handlers")
print([(p.name, p.value, p.dist.name) for p in points])
import elasticjob.rendezvous.client, elasticjob.rendezvous.launch, elasticjob.events
print(elasticjob.rendezvous.client.__file__)
"""


def _look(directory: Path) -> list[str]:
    """Ask a Python that has nothing but the directory."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOOK],
        env={"PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_python_without_any_packages_finds_handler_and_library_there(tmp_path: Path) -> None:
    assert main([str(tmp_path / "lib")]) == 0
    points, file = _look(tmp_path / "lib")
    assert points == "[('elasticjob', 'elasticjob.rendezvous.torch:handler_creator', 'elasticjob')]"
    assert Path(file).is_relative_to(tmp_path / "lib")


def test_any_user_can_read_all_of_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        (tmp_path / "lib").mkdir(mode=0o755)
        inject(tmp_path / "lib")
    finally:
        os.umask(before)
    for path in (tmp_path / "lib").rglob("*"):
        wanted = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_running_it_again_replaces_what_is_there(tmp_path: Path) -> None:
    inject(tmp_path)
    stale = tmp_path / "elasticjob" / "rendezvous" / "gone.py"
    stale.write_text("old", encoding="ascii")
    (tmp_path / "elasticjob-0.0.1.dist-info").mkdir()
    (tmp_path / "elasticjob-0.0.1.dist-info" / "entry_points.txt").write_text("[x]\n", encoding="ascii")
    (tmp_path / "somebody_elses.py").write_text("kept", encoding="ascii")
    inject(tmp_path)
    assert not stale.exists()
    assert len(list(tmp_path.glob("*.dist-info"))) == 1
    assert (tmp_path / "somebody_elses.py").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("step", ["_copy_packages", "_write_metadata", "_make_readable", "_replace_all"])
def test_a_run_that_ends_half_way_is_made_good_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(inject_module, step, killed)
        with pytest.raises(KeyboardInterrupt):
            inject(tmp_path)
    (tmp_path / ".elasticjob-inject-left").mkdir()
    assert not list(tmp_path.glob("*.dist-info"))
    inject(tmp_path)
    assert len(_look(tmp_path)) == 2
    assert not list(tmp_path.glob(".*"))


def test_the_entry_point_appears_after_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []
    rename = Path.rename

    def watched(path: Path, target: Path) -> Path:
        done = rename(path, target)
        seen.append(((tmp_path / "elasticjob").exists(), bool(list(tmp_path.glob("*.dist-info")))))
        return done

    inject(tmp_path)
    monkeypatch.setattr(Path, "rename", watched)
    inject(tmp_path)
    assert all(code for code, entry_point in seen if entry_point)
    assert seen[-1] == (True, True)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    assert main([str(tmp_path / "file" / "lib")]) == 1
    assert str(tmp_path / "file" / "lib") in capsys.readouterr().err
