"""Strings that begin as told. A small model left alone with an empty string writes headings, numbers or the question;
given the first words of a sentence it finishes the sentence. The words are literals of the grammar, so they are forced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.values import Format

_PROSE = re.compile(r'"\\"" prose_(\d+) "\\""')
_RULE = re.compile(r"prose_(\d+)", re.IGNORECASE)
_PLAIN = re.compile(r"[^\x00-\x1f\x7f\"\\{}<>]*")
_LETTERS = r"A-Za-z\x{c0}-\x{17f}\x{1e00}-\x{1eff}"
_WORD = rf"([{_LETTERS}]{{1,18}}|[A-Z][a-z]{{1,12}}[A-Z][a-z]{{1,12}})([-\/'’][{_LETTERS}]{{1,18}}){{0,2}}"
_COUNT = r"[€$]?[0-9]{1,4}%?"
# One sentence of five words or more with at most one number; one that reaches its limit stays without its full stop.
_MORE = rf"(,? {_WORD})"
_WHOLE = rf"{_WORD}{_MORE}{{3,}}( {_COUNT}{_MORE}{{2,}})?{_MORE}?[.]"
_CUT = rf"{_WORD}{_MORE}{{3,}}( {_COUNT}{_MORE}*)?"


def lead(fmt: Format, leads: Mapping[str, Sequence[str]]) -> Format:
    """The format with the first words of its free strings given, in their order.

    leads: by the name of the grammar's rule (of a reply's model in small letters, `_0`), one for each of its strings;
    an empty one leaves that string as it is. The JSON schema stays: a server is told in words only.
    """
    lines = []
    terminals: dict[str, str] = {}
    for line in fmt.lark.split("\n"):
        name = line.partition(":")[0]
        lines.append(_led(line, leads[name], terminals) if name in leads else line)
    used = {chars for line in lines for chars in _PROSE.findall(line)}
    kept = [line for line in lines[:-1] if (found := _RULE.match(line)) is None or found[1] in used]
    return replace(fmt, lark="\n".join([*kept, *terminals.values(), ""]))


def _led(rule: str, leads: Sequence[str], terminals: dict[str, str]) -> str:
    left = list(leads)

    def put(found: re.Match[str]) -> str:
        words = left.pop(0)
        if not words:
            return found.group()
        chars = int(found[1]) - len(words) - 3
        terminals.setdefault(f"{chars}", _rules(chars))
        opening = json.dumps(words + " ", ensure_ascii=False)[:-1]  # as it stands in the reply, its quote open
        return f'{json.dumps(opening, ensure_ascii=False)} led_{chars} "\\""'

    if len(_PROSE.findall(rule)) != len(left):
        raise ValueError(f"{len(left)} leads for another number of strings: {rule}")
    return _PROSE.sub(put, rule)


def _rules(chars: int) -> str:
    terminal = f"/{_WHOLE}/ & /(?s:.{{16,{chars}}})/ | /{_CUT}/ & /(?s:.{{{chars}}})/"
    return f"led_{chars}[max_tokens={chars // 2}]: LED_{chars}\nLED_{chars}: {terminal}"


def plain(text: str) -> bool:
    """May these words stand in a lead?"""
    return _PLAIN.fullmatch(text) is not None
