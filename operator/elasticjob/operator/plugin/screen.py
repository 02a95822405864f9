"""Shows pictures one after the other: in place on a terminal, else one below the other."""

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TextIO

from elasticjob.operator.plugin.text import Style

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def style_for(stream: TextIO, environ: Mapping[str, str]) -> Style:
    """Colours and limits of width on a terminal alone; no colours if NO_COLOR is set (https://no-color.org)."""
    unicode = "utf" in (stream.encoding or "").lower()
    if not stream.isatty():
        return Style(unicode=unicode)
    size = shutil.get_terminal_size()
    coloured = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Style(colour=coloured, unicode=unicode, width=size.columns, height=size.lines)


class Screen:
    """A context in which pictures replace each other; the last one stays after it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_place = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._last: Sequence[str] = ()
        self._version = ""

    def __enter__(self) -> "Screen":
        if self._in_place:
            self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_place:
            self._write(_LEAVE + "".join(f"{line}\n" for line in self._last))

    def show(self, lines: Sequence[str], *, version: str) -> None:
        """Show this picture from now on. What is not shown in place is written once for each version."""
        if self._in_place:
            self._write(_HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines).rstrip("\n") + _CLEAR_BELOW)
        elif version != self._version:
            self._write(("\n" if self._last else "") + "".join(f"{line}\n" for line in lines))
        self._last, self._version = lines, version

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
