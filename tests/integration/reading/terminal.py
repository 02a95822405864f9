"""What a program shows on a terminal, and a drawing of it.

The terminal is a real one (a pseudo terminal of the kernel), so that the program decides about colours and widths as it
does for people. The drawing is an SVG with one text a line; each run of characters has its width set, so that columns
stay columns in whatever monospaced font the reader has.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from html import escape

_SECONDS = 60.0
_CHARACTER, _LINE, _MARGIN, _BAR = 8.4, 18, 16, 34
_BACKGROUND, _FOREGROUND = "#161b22", "#d0d7de"
_COLOURS = {"31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "34": "#6cb6ff", "2": "#8b949e"}
_CODE = re.compile(r"\x1b\[([\d;]*)m")


def shown(command: Sequence[str], *, environ: Mapping[str, str], columns: int, lines: int) -> list[str]:
    """The lines that a program writes to a terminal of this size, colours included."""
    ours, its = pty.openpty()
    try:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # These variables win over the size of the terminal.
        kept = {name: value for name, value in environ.items() if name not in ("COLUMNS", "LINES")}
        process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env={**kept, "TERM": "xterm"})
        os.close(its)
        written = b"".join(iter(lambda: _read(ours), b""))
        assert process.wait(_SECONDS) == 0, written.decode()
    finally:
        os.close(ours)
    return written.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody has the other side open any more
        return b""


def text(line: str) -> str:
    """A line without its colours."""
    return _CODE.sub("", line)


def drawing(command: str, lines: Sequence[str]) -> str:
    """The SVG of a terminal in which a command was given and these lines were written."""
    written = [f"$ {command}", *lines]
    width = 2 * _MARGIN + _CHARACTER * max(len(text(line)) for line in written)
    height = _BAR + 2 * _MARGIN + _LINE * len(written)
    size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    rows = (_row(line, _BAR + _MARGIN + _LINE * number) for number, line in enumerate(written, 1))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(command)}">',
            f'<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/>',
            *(
                f'<circle cx="{_MARGIN + 6 + 20 * place}" cy="18" r="6" fill="{colour}"/>'
                for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
            ),
            f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="{_FOREGROUND}">',
            *(row for row in rows if row),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _row(line: str, y: int) -> str:
    spans = [_span(piece, code, place) for piece, code, place in _pieces(line) if piece.strip()]
    return f'<text y="{y}" xml:space="preserve">{"".join(spans)}</text>' if spans else ""


def _pieces(line: str) -> Iterator[tuple[str, str, int]]:
    """Pieces of one colour with the column where they begin."""
    code, place = "", 0
    parts = _CODE.split(line)
    for number, part in enumerate(parts):
        if number % 2:
            code = part if part != "0" else ""
            continue
        for word in re.finditer(r"\S+(?: \S+)*", part):
            yield word[0], code, place + word.start()
        place += len(part)


def _span(piece: str, code: str, place: int) -> str:
    colour = f' fill="{_COLOURS[code]}"' if code in _COLOURS else ""
    weight = ' font-weight="bold"' if code == "1" else ""
    where = f'x="{_MARGIN + _CHARACTER * place:.1f}" textLength="{_CHARACTER * len(piece):.1f}"'
    return f'<tspan {where} lengthAdjust="spacingAndGlyphs"{colour}{weight}>{escape(piece)}</tspan>'
