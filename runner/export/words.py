"""Foreign text made safe for other programs' formats, and shortened."""

from __future__ import annotations

import re
from urllib.parse import quote as percent_encoded

from runner.render import visible

MESSAGE_MAX = 1000  # characters of a message; a longer one is cut with an ellipsis
_NOT_XML = re.compile("[\ufffe\uffff\U0001fffe\U0001ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def shown(text: str) -> str:
    """Every character that hides, turns the line round or is no text shown as ⟨U+XXXX⟩; line ends stay."""
    return _NOT_XML.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", visible(text))


def line(text: str, most: int = MESSAGE_MAX) -> str:
    """The text on one line, shown, at most this many characters."""
    return cut(shown(" ".join(text.split())), most)


def cut(text: str, most: int = MESSAGE_MAX) -> str:
    """Not longer than `most` characters; what was cut ends in an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def path_line(path: str) -> str:
    """A path on one line, its blanks as they are."""
    return shown(path).replace("\n", "⟨U+000A⟩").replace("\t", "⟨U+0009⟩")


def encodable(text: str) -> str:
    """Without lone surrogates, which no UTF-8 file can hold."""
    return _SURROGATE.sub("\ufffd", text)


def uri(path: str) -> str:
    """A relative URI reference to a file: percent-encoded, no `..`, not absolute; `.` for no path at all."""
    parts = [p for p in path.replace("\\", "/").split("/") if p not in ("", ".", "..")]
    raw = "/".join(parts).encode("utf-8", "surrogatepass")
    return percent_encoded(raw, safe="/~-._!$&'()*+,;=@") or "."


def plural(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"
