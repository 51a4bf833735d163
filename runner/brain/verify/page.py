"""One markdown file as the rules see it: its kind, the fields of its front matter, its first heading.

Reading is lenient where `front_matter` is strict: it takes what the pack's validator takes, so that both judge the same
values. What cannot be read is a `problem` of the page, never an exception.
"""

# Paths are text here: thousands of Path objects would cost more than the rules.
# ruff: noqa: PTH116, PTH123
from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

# PyYAML as built from source may lack the fast loader. The two read a text alike unless it holds one of these.
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_READ_DIFFERENTLY = re.compile("[\t!?|>\x85\u2028\u2029\ufeff]")
_QUOTED_VALUE = re.compile(r'^ *(?:- )?\w+: "[^"\\\t\x85\u2028\u2029\ufeff\n]*"$', re.MULTILINE)
_MAX_SLOW = 64 * 1024
# A merge of merges doubles with each level; no honest front matter needs this many.
_MAX_MERGED = 32
# A date such as 2026-13-45 or an integer of 5,000 digits makes PyYAML raise something other than YAMLError.
_LOAD_ERRORS = (yaml.YAMLError, ValueError, OverflowError, TypeError, AttributeError, LookupError, RecursionError)

_BANNERS = re.compile(r"(?:\s*<!(?=--).*?-->\n*)*", re.DOTALL)
_CLOSER = re.compile(r"^[^\S\n]*---[^\S\n]*$", re.MULTILINE)
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)]+)\)")
_ROUND_OUTPUTS = ("proposed-patches.md", "open-issues.md")
_BY_NAME = {"CONVENTIONS.md": "conventions", "thread-index.md": "index", "current-state.md": "snapshot"}

FREE = "free"  # a file that needs no front matter: notes, transcripts, attachments, what reviewers wrote


@dataclass(frozen=True, slots=True)
class Page:
    """rel: from the brain root, with `/`. heading: the text of the first `# ` line, None when there is none.

    front: the YAML as text, beginning at line `front_line`; line 0 stands for the whole file. links: of a NODE.md, the
    targets below `## Leaves` with their lines.
    """

    rel: str
    kind: str
    fields: Mapping[Any, Any] = field(default_factory=dict)
    heading: str | None = None
    heading_line: int = 0
    front: str = ""
    front_line: int = 0
    links: tuple[tuple[str, int], ...] = ()
    problem: str = ""
    problem_line: int = 0

    @property
    def parts(self) -> list[str]:
        return self.rel.split("/")

    def text(self, key: str) -> str:
        """A field that is a non-empty string, else the empty string."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else ""

    def line(self, key: str) -> int:
        """Where a key stands; the front matter's first line when it stands nowhere."""
        found = re.search(rf"^[\"']?{re.escape(key)}[\"']?[ \t]*:", self.front, re.MULTILINE)
        return self._at(found.start()) if found else max(self.front_line - 1, 0)

    def line_of(self, text: str, key: str) -> int:
        """Where a text first stands in the front matter, else where the key does."""
        at = self.front.find(text)
        return self._at(at) if at >= 0 else self.line(key)

    def _at(self, offset: int) -> int:
        return self.front_line + self.front.count("\n", 0, offset)


@dataclass(frozen=True, slots=True)
class _Front:
    fields: dict[Any, Any]
    text: str = ""
    line: int = 0
    body: int = 0
    problem: str = ""
    problem_line: int = 0


def kind_of(rel: str, fields: Mapping[Any, Any]) -> str:
    """conventions, index, snapshot, artifact, round-index, round-output, node, thread, impl-spec, leaf, or FREE.

    By name and folder; `kind: impl-spec` in the front matter decides for the files that no name or folder claims first.
    """
    parts = rel.split("/")
    name = parts[-1]
    if name in _BY_NAME:
        return _BY_NAME[name]
    if "attachments" in parts or name == "transcript.md":
        return FREE
    markdown = name.endswith(".md")  # other spellings, `.MD`, are walked for N-02 alone
    if "artifacts" in parts and markdown:
        return "artifact"
    if any(p == "debate" or p.endswith(".debate") for p in parts):
        in_round = any(p.startswith("round-") for p in parts)
        if markdown or not in_round:
            return _kind_in_debate(name, in_round)
    if name in ("NODE.md", "thread.md"):
        return name.removesuffix(".md").lower()
    if fields.get("kind") == "impl-spec":
        return "impl-spec"
    staged = parts[0] == "threads" and parts[2:3] == ["tree-staging"]
    return "leaf" if markdown and (staged or parts[0] in ("tree", "tree-staging")) else FREE


def _kind_in_debate(name: str, in_round: bool) -> str:
    if in_round:
        return "round-output" if name in _ROUND_OUTPUTS else FREE
    return "round-index" if name == "index.md" else FREE


def load(path: str, rel: str) -> Page:
    """Read one file. A file that cannot be read is a page whose `problem` says why."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return Page(rel, kind_of(rel, {}), problem="not a regular file")
        with open(path, "rb") as file:
            raw = file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Page(rel, kind_of(rel, {}), problem=f"the file cannot be read: {reason}")
    return parse(raw, rel)


def parse(raw: bytes, rel: str) -> Page:
    """A page from a file's bytes."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        return Page(rel, kind_of(rel, {}), problem="the file is not UTF-8", problem_line=line)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    front = _front(text)
    kind = kind_of(rel, front.fields)
    heading = _HEADING.search(text, front.body)
    return Page(
        rel, kind, front.fields,
        heading=heading.group(1).strip() if heading else None,
        heading_line=text.count("\n", 0, heading.start()) + 1 if heading else 0,
        front=front.text, front_line=front.line,
        links=_listed(text, front.body) if kind == "node" else (),
        problem=front.problem, problem_line=front.problem_line,
    )  # fmt: skip


def _front(text: str) -> _Front:
    banners = _BANNERS.match(text)
    start = banners.end() if banners else 0
    if not text.startswith("---", start):
        return _Front({}, problem=_no_opener(text, start), problem_line=1)
    opener = text.count("\n", 0, start) + 1
    first = text.find("\n", start) + 1
    closer = _CLOSER.search(text, first) if first else None
    if closer is None:
        return _Front({}, problem="the front matter is never closed by a line ---", problem_line=opener)
    source = text[first : max(closer.start() - 1, first)]
    body = min(closer.end() + 1, len(text))
    fields, problem, line = _load_yaml(source)
    return _Front(fields, source, opener + 1, body, problem, opener + 1 + line if problem else 0)


def _no_opener(text: str, start: int) -> str:
    if text[start:].lstrip().startswith("<!--"):
        return "the comment at the top of the file is never closed"
    if text.startswith("\ufeff"):
        return "a byte-order mark stands before the front matter; save the file without it"
    return "there is no front matter: the file must begin with a line ---"


def _load_yaml(source: str) -> tuple[dict[Any, Any], str, int]:
    """The mapping; else what is wrong with it, and how many lines below the first one."""
    if "<<" in source and source.count("*") > _MAX_MERGED:
        return {}, "the front matter merges too many aliases", 0
    try:
        data = _loaded(source)
    except _LOAD_ERRORS as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).partition("\n")[0] or type(error).__name__
        return {}, f"the front matter is not readable YAML: {reason}", mark.line if mark else 0
    if data and not isinstance(data, dict):
        return {}, "the front matter is not a list of `key: value` lines", 0
    return data or {}, "", 0


def _loaded(source: str) -> Any:
    """As the slow loader reads it, which is the pack's; through the fast one where both agree."""
    if len(source) > _MAX_SLOW or not _READ_DIFFERENTLY.search(_QUOTED_VALUE.sub("", source)):
        try:
            return yaml.load(source, Loader=_FAST)
        except yaml.YAMLError as error:
            if len(source) > _MAX_SLOW or "nesting depth" in str(error):
                raise
    return yaml.load(source, Loader=yaml.SafeLoader)


def _listed(text: str, body: int) -> tuple[tuple[str, int], ...]:
    """The link targets between `## Leaves` and the next heading of that level."""
    found: list[tuple[str, int]] = []
    inside = False
    for number, line in enumerate(text[body:].split("\n"), text.count("\n", 0, body) + 1):
        content = line.strip()
        if content.lower().startswith("## leaves"):
            inside = True
        elif inside and content.startswith("## "):
            break
        elif inside:
            found += [(target, number) for target in _LINK.findall(line)]
    return tuple(found)
