"""Replies that a test writes itself, what a markdown reader makes of a round's files, and diffs applied by hand."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from runner import cli
from runner.values import LABELS, Finish, Reply, Request

FEEDBACK = ("--feedback", "Is it ready?", "--profile", "fake", "-q")

OURS = ("Apply what you accept with `debate patches", "By hand: change the H1 and `title` together.")
STRANGE = {"html_inline", "link_open", "image", "em_open", "code_inline", "hardbreak"}


def debate(*argv: str) -> int:
    """Run one command line."""
    return cli.run(list(argv))


def claim(quote: str, replacement: str | None = None, **more: str) -> dict[str, str]:
    """A claim as a reviewer replies it; replacement None proposes nothing."""
    action = "none" if replacement is None else "replace" if replacement else "delete"
    fixed = {"quote": quote, "kind": "ambiguity", "problem": "It is not clear.", "severity": "major"}
    return fixed | {"action": action, "replacement": replacement or ""} | more


@dataclass
class Says:
    """In the place of runner.engines.fake.answer.

    claims: of every reviewer, or by persona; a function gets the passages. labels: verdicts in turn. raw: key pattern
    -> a whole reply text, or (text, finish). asked: every request, in order.
    """

    claims: Any = ()
    observations: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    reason: str = "It is so."
    labels: tuple[str, ...] = ("CONCEDE",)
    amended: str = "It is made clear."
    synthesis: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    scores: Callable[[Request], tuple[float, ...]] | None = None
    asked: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        self.asked.append(request)
        said = next((text for key, text in self.raw.items() if fnmatchcase(request.key, key)), None)
        if said is not None:
            text, finish = said if isinstance(said, tuple) else (said, "stop")
            return _reply(request, text, finish)
        if request.choices:
            return _reply(request, request.choices[0], scores=(self.scores or self._scores)(request))
        return _reply(request, json.dumps(self._said(request), ensure_ascii=False))

    def _scores(self, request: Request) -> tuple[float, ...]:
        found = re.search(r"C-(\d+)", request.key)
        sure = LABELS.index(self.labels[(int(found[1]) - 1) % len(self.labels)]) if found else None
        return tuple(math.log(0.25 if sure is None else 0.85 if i == sure else 0.05) for i in range(4))

    def _said(self, request: Request) -> dict[str, Any]:
        key = request.key.split("~")[0]
        if key.startswith("reviewer/"):
            made = self.claims.get(key.split("/")[1], ()) if isinstance(self.claims, dict) else self.claims
            made = made(request.format.quotes if request.format else ()) if callable(made) else made
            return {
                "observations": list(self.observations), "claims": list(made), "open_questions": list(self.questions),
            }  # fmt: skip
        if key.endswith("/amended"):
            return {"action": "replace", "replacement": self.amended}
        if key.startswith("synthesizer"):
            return self.synthesis
        return {"reason": self.reason}


def _reply(request: Request, text: str, finish: Finish = "stop", scores: tuple[float, ...] = ()) -> Reply:
    return Reply(request.key, text, finish, tokens_in=1, tokens_out=1, scores=scores)


# ---- what a reader sees --------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, str]:
    """Every markdown file of a round."""
    return {p.relative_to(folder).as_posix(): p.read_bytes().decode() for p in sorted(folder.rglob("*.md"))}


def front(text: str) -> tuple[str, str]:
    """(the lines of the front matter, the rest)."""
    head, closer, body = text.removeprefix("---\n").partition("\n---\n")
    return (head, body) if text.startswith("---\n") and closer else ("", text)


def structure(text: str) -> list[str]:
    """The blocks of a markdown text by a CommonMark reader, without paragraphs and their words.

    A heading is `h3 first-word`. Inside a quote only that it is one: what a quote holds is the document's.
    """
    found: list[str] = []
    quotes = 0
    tokens = MarkdownIt("commonmark").parse(front(text)[1])
    for at, token in enumerate(tokens):
        quotes += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type == "blockquote_open" and quotes == 1:
            found.append("quote")
        if quotes:
            assert token.type not in ("html_block",) and "html_inline" not in _inline(token)
            continue
        if token.type == "heading_open":
            found.append(f"{token.tag} {tokens[at + 1].content.split(' ')[0]}")
        elif token.type == "fence":
            found.append(f"fence {token.info}")
        elif token.type in ("html_block", "hr", "code_block", "bullet_list_open", "ordered_list_open"):
            found.append(token.type)
        strange = set() if token.content.startswith(OURS) else _inline(token) & STRANGE
        assert not strange, (strange, token.content)
    return found


def _inline(token: Any) -> set[str]:
    return {child.type for child in token.children or ()}


def fences(text: str, info: str) -> list[str]:
    """What stands in the fenced blocks with this word, to the byte, in the order of the file."""
    pattern = rf"^(`{{3,}}){info}\n(.*?)^\1$"
    return [m[2] for m in re.finditer(pattern, text, re.DOTALL | re.MULTILINE)]


def patched(old: bytes, diff: bytes) -> bytes:
    """A unified diff of one hunk applied by the letter: counts, line numbers and every context byte must be right."""
    lines = re.findall(rb"[^\n]*\n", diff)
    assert lines[0].startswith(b"--- ") and lines[1].startswith(b"+++ ")
    hunk = re.fullmatch(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n", lines[2])
    assert hunk is not None
    counts = [1 if n is None else int(n) for n in (hunk[2], hunk[4])]
    gone, new = list[bytes](), list[bytes]()
    for line in lines[3:]:
        if line.startswith(b"\\"):
            last = [gone, new] if before == b" " else [gone] if before == b"-" else [new]  # noqa: F821
            for side in last:
                side[-1] = side[-1].removesuffix(b"\n")
            continue
        before = line[:1]
        gone += [line[1:]] if before in (b" ", b"-") else []
        new += [line[1:]] if before in (b" ", b"+") else []
    assert [len(gone), len(new)] == counts
    whole = re.findall(rb"[^\n]*\n|[^\n]+", old)
    at = int(hunk[1]) - (1 if counts[0] else 0)
    assert whole[at : at + len(gone)] == gone
    return b"".join([*whole[:at], *new, *whole[at + len(gone) :]])
