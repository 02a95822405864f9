"""The command line, with a program in the place of kubectl."""

import io
import json
import os
import resource
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from elasticjob.operator.plugin.main import main
from elasticjob.operator.plugin.screen import Screen, style_for
from tests.unit.operator.plugin.jobs import condition, pod, running


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what `kubectl` answers, `out`, `err`, `code`, and `refused` for what is created.

    There it notes its arguments, `args`, and the last object that was `given` to it.
    """
    program = tmp_path / "kubectl"
    program.write_text(
        '#!/bin/sh\ncd "$(dirname "$0")"\necho "$@" >> args\n'
        '[ "$1" = create ] && { cat > given; cat refused >&2; test ! -s refused; exit; }\n'
        'cat out\ncat err >&2\nexit "$(cat code)"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name, text in (("out", ""), ("err", ""), ("code", "0"), ("refused", "")):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def answer(answers: Path, body: Any) -> None:
    (answers / "out").write_text(json.dumps(body))


def refuse(answers: Path, words: str) -> None:
    (answers / "err").write_text(words)
    (answers / "code").write_text("1")


def test_the_options_of_the_user_reach_kubectl(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(answers, running())
    assert main(["status", "digits", "-n", "train", "--context", "far"]) == 0
    assert capsys.readouterr().out.startswith("digits  Running  round 3")
    (line,) = (answers / "args").read_text().splitlines()
    assert line.startswith("get --namespace=train --context=far elasticjobs.elasticjob.dev digits --output=json")


@pytest.mark.parametrize("verb", ["status", "why", "events"])
def test_each_command_shows_something_without_colours_into_a_pipe(
    verb: str, answers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(answers, {**running(), "items": []})
    assert main([verb, "digits"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("\n")
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            'Error from server (NotFound): elasticjobs.elasticjob.dev "digits" not found',
            "there is no ElasticJob 'digits' in this namespace",
        ),
        ('error: the server doesn\'t have a resource type "elasticjobs"', "is elasticjob installed there?"),
        (
            'Error from server (Forbidden): elasticjobs.elasticjob.dev "digits" is forbidden: User "eve" cannot get',
            'no permission: elasticjobs.elasticjob.dev "digits" is forbidden: User "eve" cannot get',
        ),
        (
            "E1129 19:00:43.207020  12 memcache.go:265] x\nThe connection to the server localhost:8080 was",
            "error: The connection to the server localhost:8080",
        ),
        ("", "kubectl failed and did not say why"),
    ],
)
def test_a_refusal_is_told_in_one_line(
    words: str, told: str, answers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(answers, words)
    assert main(["why", "digits"]) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_drain_evicts_the_pod_of_the_node(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(answers, {**running(), "items": [pod(0), pod(1)]})
    assert main(["drain", "digits", "digits-1", "--context", "far"]) == 0
    assert capsys.readouterr().out.startswith("digits-1 (pod digits-1-0 on machine worker-1) has been asked to leave.")
    assert json.loads((answers / "given").read_text())["metadata"] == {"name": "digits-1-0", "namespace": "train"}
    last = (answers / "args").read_text().splitlines()[-1]
    assert last.startswith("create --context=far --raw /api/v1/namespaces/train/pods/digits-1-0/eviction")


def test_a_pod_that_leaves_already_is_not_evicted_again(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(answers, {**running(), "items": [pod(0, deletionTimestamp="2030-01-01T14:00:00Z")]})
    assert main(["drain", "digits", "digits-0"]) == 0
    assert "leaves already" in capsys.readouterr().out
    assert not (answers / "given").exists()


def test_a_refused_drain_is_told_in_the_words_of_the_api(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(answers, {**running(), "items": [pod(0)]})
    (answers / "refused").write_text("Error from server (TooManyRequests): Cannot evict pod as it would violate …")
    assert main(["drain", "digits", "digits-0"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "was not evicted: Cannot evict pod as it would violate …" in shown.err


def test_an_unknown_node_is_told_with_the_known_ones(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(answers, {**running(), "items": [pod(0)]})
    assert main(["drain", "digits", "digits-9"]) == 1
    assert capsys.readouterr().err == (
        "error: digits has no node, no pod and no machine 'digits-9'. "
        "It has digits-0 (pod digits-0-0 on machine worker-0)\n"
    )


def test_a_missing_kubectl_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["status", "digits"]) == 1
    assert "kubectl was not found on PATH" in capsys.readouterr().err


def test_an_answer_that_is_no_json_is_told(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (answers / "out").write_text("<html>")
    assert main(["status", "digits"]) == 1
    assert "not JSON" in capsys.readouterr().err


def test_watching_ends_when_the_job_is_over(answers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(answers, running(phase="Succeeded", conditions=[condition("Succeeded", "True", "AllNodesSucceeded")]))
    assert main(["status", "digits", "--watch"]) == 0
    assert capsys.readouterr().out.startswith("digits  Succeeded")


def test_watching_ends_when_the_job_is_deleted(
    answers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(answers, running())
    monkeypatch.setattr(time, "sleep", lambda _: refuse(answers, 'Error from server (NotFound): "digits" not found'))
    assert main(["status", "digits", "--watch"]) == 0
    assert capsys.readouterr().out.endswith("(the job has been deleted)\n")


def test_a_terminal_shows_colours_unless_it_is_told_not_to() -> None:
    assert style_for(Terminal(), {"TERM": "xterm"}).colour
    assert not style_for(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}).colour
    assert not style_for(Terminal(), {"TERM": "dumb"}).colour
    assert not style_for(io.StringIO(), {"TERM": "xterm"}).colour


def test_on_a_terminal_pictures_replace_each_other_and_the_last_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with Screen(terminal) as screen:
        screen.show(["one"], version="1")
        screen.show(["two"], version="1")
    text = terminal.getvalue()
    assert text.count("\x1b[H") == 2
    assert text.endswith("\x1b[?1049ltwo\n")


def test_into_a_pipe_a_picture_is_written_once_for_each_version() -> None:
    pipe = io.StringIO()
    with Screen(pipe) as screen:
        for version in ("1", "1", "2"):
            screen.show([f"picture {version}"], version=version)
    assert pipe.getvalue() == "picture 1\n\npicture 2\n"


def test_the_plugin_starts_at_once_and_loads_nothing_heavy() -> None:
    program = (
        "import sys, elasticjob.operator.plugin.main as main; main.parser(); "
        "print([name for name in ('kopf', 'kubernetes', 'aiohttp', 'yaml', 'asyncio') if name in sys.modules])"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 0.3
