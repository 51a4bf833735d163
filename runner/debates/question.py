"""What a question brings with it: the context block of at most 200 words, and files of the project that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.brain import links
from runner.brain.root import canonical, kind, shown
from runner.brain.verify import aliases
from runner.errors import Refused

MAX_WORDS = 200  # of the context, and of the question itself
_MAX_CHARS = 4000
FIELDS = {
    "decision": "Decision", "constraints": "Constraints", "stakes": "Stakes", "leaning": "Current leaning",
}  # fmt: skip
HEAD = "CONTEXT FOR DEBATE:"

# A script without blanks counts by the character.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_NAMED = re.compile(r"`([^`\n]+)`|([^\s`\"'()<>\[\]]+)")
_FRONT = re.compile(r"\A---[ \t]*\n(?:.*\n)*?---[ \t]*\n")
_LEANING = re.compile(r"^\W*(current )?leaning\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """A file that the question names. words: shown and in all; both 0 when it was not read, for the reason `why`."""

    name: str
    text: str = ""
    words: tuple[int, int] = (0, 0)
    why: str = ""

    @property
    def line(self) -> str:
        if self.why:
            return f"{self.name}: not read ({self.why})"
        return f"{self.name}: {self.words[0]} of {self.words[1]} words read"


@dataclass(frozen=True, slots=True)
class Context:
    """text: the block that every seat gets, or empty. leaning: does it name the asker's leaning?"""

    text: str
    leaning: bool
    found: tuple[Found, ...]


def count(text: str) -> int:
    """Words."""
    return len(_WORD.findall(text))


def check_question(text: str) -> str:
    """The question on one line. Refused when it is empty or too long."""
    question = " ".join(text.split())
    if not re.search(r"\w", question):
        raise Refused("the question is empty", hint='debate ask "Should we …?"', code="missing")
    words = count(question)
    if words > MAX_WORDS or len(question) > _MAX_CHARS:
        raise Refused(
            f"the question has {words} words ({len(question)} characters), {MAX_WORDS} ({_MAX_CHARS}) are allowed",
            hint="ask one thing; the background goes into --context-file",
        )
    return question


def vague(question: str) -> bool:
    """Too little to debate: a word or two that name no choice."""
    return count(question) < 4 and not re.search(r"\b(or|vs\.?|versus)\b", question, re.IGNORECASE)


def context(question: str, given: Mapping[str, str], file: str, root: Path | None, project: Path, cwd: Path) -> Context:
    """The block of the options or of the context file, with what the question names in the project.

    given: by option name (see FIELDS). file: the context file's text. Refused above 200 words.
    """
    lines = [f"- {FIELDS[name]}: {' '.join(text.split())}" for name, text in given.items() if text.strip()]
    body = file.strip().removeprefix(HEAD).strip() if file.strip() else ""
    own = [" ".join(text.split()) for text in given.values()] + [body]
    words = sum(map(count, own))
    if words > MAX_WORDS or sum(map(len, own)) > _MAX_CHARS:
        raise Refused(
            f"the context has {words} words ({sum(map(len, own))} characters), {MAX_WORDS} ({_MAX_CHARS}) are allowed",
            hint="keep what decides the question",
        )
    found = lookup(question, root, project, cwd, MAX_WORDS - words)
    lines += [body] if body else []
    lines += [f"- From {f.name}: {f.text}" for f in found if f.text]
    leaning = bool(given.get("leaning", "").strip() or _LEANING.search(body))
    return Context("\n".join([HEAD, *lines]) if lines else "", leaning, found)


def lookup(question: str, root: Path | None, project: Path, cwd: Path, room: int) -> tuple[Found, ...]:
    """Files that the question names by path or by brain link, cut to `room` words in all; those outside are named."""
    places: dict[Path, str] = {}
    outside: list[Found] = []
    for name in dict.fromkeys((a or b).rstrip(".,:;?!") for a, b in _NAMED.findall(question)):
        path = _place(name, root, project, cwd)
        if path is None:
            continue
        if project in path.parents:
            places.setdefault(path, shown(path))
        else:
            outside.append(Found(name, why="outside the project"))
    return (*_read(places, room), *outside)


def _place(name: str, root: Path | None, project: Path, cwd: Path) -> Path | None:
    """Where a word leads, when it looks like a path or a link and a file is there."""
    if not ("/" in name or re.search(r"\.[A-Za-z0-9]{1,8}$|^[\w-]+:\S", name)):
        return None
    tried = [cwd / name, project / name, *([] if root is None else [root / name])]
    try:
        for path in map(canonical, tried):
            if kind(path) == "file":
                return path
        link = links.resolve(name, root, aliases.layers(str(root))) if root is not None else links.Place(None)
    except Refused:
        return None
    return link.path if link.path is not None and kind(link.path) == "file" else None


def _read(places: Mapping[Path, str], room: int) -> Sequence[Found]:
    """Each file gets its share of what is left."""
    found: list[Found] = []
    for at, (path, name) in enumerate(places.items()):
        copy = links.copy(path)
        share = room // (len(places) - at)
        text, words = _first_words(_FRONT.sub("", copy.text), share)
        why = copy.hidden or ("" if share else f"the context has its {MAX_WORDS} words already")
        room -= min(words, share)
        found.append(Found(name, why=why) if why else Found(name, text, (min(words, share), words)))
    return found


def _first_words(text: str, most: int) -> tuple[str, int]:
    spans = [m.span() for m in _WORD.finditer(text)]
    end = spans[most - 1][1] if 0 < most < len(spans) else len(text)
    return " ".join(text[: min(end, _MAX_CHARS)].split()) if most else "", len(spans)
