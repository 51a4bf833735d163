"""What looks like a credential, and the text without it: detect-secrets' detectors, and nothing that asks a network.

A detector's own patterns are used, never its `verify`. Two kinds are left out: a public IP address is no credential,
and an unquoted word counts only where it is long and random, or stands as the value of a telling name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

_LEFT_OUT = {"IPPublicDetector", "KeywordDetector"}  # keywords are sought below, by kind of file
_SETTINGS = {".env", ".ini", ".cfg", ".conf", ".yaml", ".yml", ".toml", ".properties", ".eyaml", ".hcl", ".tfvars"}
_LINE_CHARS, _OVERLAP = 2000, 300  # some patterns take quadratic time, and minified code is one line
_BARE = re.compile(r"[A-Za-z0-9+/_=-]{20,}")
_VALUE = re.compile(r"[^\s'\"`,;)}\]>]+")
_MARK = re.compile(r"\[redacted: [^\]\n]{1,60}\]")
_WORDS = {"true", "false", "none", "null", "yes", "no", "nil", "undefined", "optional", "required", "str", "string"}
_TOKEN_RUN = re.compile(r"(?:[A-Za-z0-9_+/=-]|\.(?=[A-Za-z0-9]))*")
_RUN = re.compile(r"[^\s'\"`,;:()<>\[\]{}|=]{6,}")
_TELLING = (
    re.compile(
        r"(?i)\b\w*(?:token|passphrase|credential|apikey)\w*['\"]?\]?\s*(?::=|=>|[:=])\s*(['\"`])([^'\"`\n]+)\1"
    ),
    re.compile(r"(?i)\b(bearer|basic)\s+([A-Za-z0-9+/_=.~-]{12,})"),
)
_BETWEEN = r"""(?:[\s>#*'",]|\\[nr])*"""
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_BETWEEN}[A-Za-z0-9+/=]{{16,}}|\s*[A-Za-z-]+: [^\n]*)*"
    rf"(?:{_BETWEEN}[A-Za-z0-9+/=]*{_BETWEEN}-----END [A-Z0-9 ]*-----)?"
)


class Span(NamedTuple):
    """Characters of the text that look like a credential, and what the detector calls it."""

    start: int
    end: int
    kind: str


def redact(text: str, known: Collection[str] = (), name: str = "") -> str:
    """The text with `[redacted: <kind>]` in the place of every credential; its lines stay as many as they were.

    known: fingerprints of credentials found elsewhere, see `fingerprints`. name: the file's, which says how its values
    are written. Redacting twice changes nothing more.
    """
    out, at = [], 0
    for start, end, kind in find(text, known, name):
        out += [text[at:start], f"[redacted: {kind}]"]
        at = end
    return "".join([*out, text[at:]])


def redact_values(value: Any, known: Collection[str] = (), same: Collection[str] = ()) -> Any:
    """Plain JSON values with every string redacted, names of keys and checksums left as they are.

    same: texts that have been redacted; a string that is part of one stays.
    """
    if isinstance(value, str):
        return value if any(value in text for text in same) else redact(value, known)
    if isinstance(value, dict):
        return {k: v if "sha256" in str(k) else redact_values(v, known, same) for k, v in value.items()}
    return [redact_values(v, known, same) for v in value] if isinstance(value, list) else value


def redact_reply(text: str, known: Collection[str], same: Collection[str]) -> str:
    """A reply's JSON, string by string; of a reply that was cut off, the text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return redact(text, known)
    changed = redact_values(value, known, same)
    return text if changed == value else json.dumps(changed, ensure_ascii=False, separators=(",", ":"))


def fingerprints(texts: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Of each credential in these (name, text): by them it is known again where it stands without its name.

    A short word, or one of small letters only, is none: it would be found in ordinary prose.
    """
    found = {text[a:b] for name, text in texts for a, b, _ in find(text, (), name)}
    telling = {v for v in found if len(v) >= 6 and (len(v) >= 12 or not re.fullmatch("[a-z]*", v))}
    return tuple(sorted(map(_print, telling)))


def _print(value: str) -> str:
    return hashlib.sha256(b"credential\0" + value.encode("utf-8", "surrogatepass")).hexdigest()


def find(text: str, known: Collection[str] = (), name: str = "") -> list[Span]:
    """Every credential, in order, none overlapping another, none reaching over the end of a line."""
    spans = [s for block in _KEY_BLOCK.finditer(text) for s in _by_line(text, block.start(), block.end())]
    at = 0
    for line in text.split("\n"):
        spans += [Span(at + a, at + b, kind) for a, b, kind in _in_line(line, known, name)]
        at += len(line) + 1
    marks = [m.span() for m in _MARK.finditer(text)]
    return _merged(s for s in spans if not any(s.start < b and a < s.end for a, b in marks))


def _by_line(text: str, start: int, end: int) -> Iterator[Span]:
    for m in re.finditer(r"[^\s][^\n]*", text[start:end]):
        yield Span(start + m.start(), start + m.start() + len(m[0].rstrip()), "Private Key")


def _merged(spans: Iterable[Span]) -> list[Span]:
    out: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        if out and span.start <= out[-1].end:
            out[-1] = out[-1]._replace(end=max(span.end, out[-1].end))
        elif span.start < span.end:
            out.append(span)
    return out


# ---- one line ------------------------------------------------------------------------------------------------------


def _in_line(line: str, known: Collection[str], name: str) -> Iterator[Span]:
    for at in range(0, max(1, len(line)), _LINE_CHARS):
        piece = line[at : at + _LINE_CHARS + _OVERLAP]
        if len(piece) >= 4:
            found = (*_patterns(piece), *_random(piece), *_keywords(piece, name), *_seen(piece, known))
            yield from (Span(at + a, at + b, kind) for a, b, kind in found if _plausible(piece[a:b]))


def _plausible(value: str) -> bool:
    from detect_secrets.filters import heuristic

    if heuristic.is_not_alphanumeric_string(value) or heuristic.is_templated_secret(value):
        return False
    return value.lower() not in _WORDS and not value.startswith("$") and not value.startswith("[redacted: ")


@lru_cache(maxsize=1)
def _detectors() -> tuple[Any, ...]:
    """Imported when first needed: no other command has use for them."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    classes: Any = get_mapping_from_secret_type_to_class().values()
    return tuple(c() for c in classes if c.__name__ not in _LEFT_OUT)


def _patterns(line: str) -> Iterator[Span]:
    for detector in _detectors():
        for pattern in getattr(detector, "denylist", ()):
            for m in pattern.finditer(line):
                # The credential alone where the pattern names it; some name the kind instead: `ghp`.
                group = max(range(len(m.groups()) + 1), key=lambda g: len(m[g] or "") if g else 5.5)
                start, end = m.span(group)
                yield Span(start, _token_end(line, end), detector.secret_type)


def _token_end(line: str, end: int) -> int:
    """A pattern may know the beginning of a token only."""
    run = _TOKEN_RUN.match(line, end)
    return end if run is None or not (line[end - 1].isalnum() or line[end - 1] == ".") else run.end()


def _random(line: str) -> Iterator[Span]:
    for detector in _detectors():
        if not hasattr(detector, "entropy_limit"):
            continue
        quoted = [m.span(2) for m in detector.regex.finditer(line)]
        bare = [m.span() for m in _BARE.finditer(line) if set(m[0]) <= set(detector.charset)]
        for start, end in (*quoted, *bare):
            if detector.calculate_shannon_entropy(line[start:end]) > detector.entropy_limit:
                yield Span(start, end, detector.secret_type)


def _keywords(line: str, name: str) -> Iterator[Span]:
    from detect_secrets.plugins import keyword

    kind = keyword.KeywordDetector.secret_type
    for pattern, group in keyword.QUOTES_REQUIRED_DENYLIST_REGEX_TO_GROUP.items():
        yield from (Span(*m.span(group), kind) for m in pattern.finditer(line))
    for pattern in _TELLING:
        yield from (Span(*m.span(2), kind) for m in pattern.finditer(line) if re.search("[0-9]", m[2]))
    for pattern, group in keyword.CONFIG_DENYLIST_REGEX_TO_GROUP.items():
        for m in pattern.finditer(line):
            yield from (Span(a, b, kind) for a, b in _unquoted(line, *m.span(group), name))


def _unquoted(line: str, start: int, end: int, name: str) -> Iterator[tuple[int, int]]:
    """The value after a telling name: all of it in a file of settings, elsewhere a word that holds a digit."""
    from detect_secrets.filters import heuristic

    path = PurePosixPath(name)
    if path.suffix.lower() in _SETTINGS or path.name.startswith(".env"):
        value = re.sub(r"\s+#.*$", "", line[start:end]).rstrip()
        yield start, start + len(value)
        return
    word = _VALUE.match(line, start)
    if word is None or heuristic.is_indirect_reference(line) or re.search(r"[(\[.]", word[0]):
        return
    if len(word[0]) >= 6 and re.search("[0-9]", word[0]) and re.search("[A-Za-z]", word[0]):
        yield word.span()


def _seen(line: str, known: Collection[str]) -> Iterator[Span]:
    for m in _RUN.finditer(line) if known else ():
        for end in dict.fromkeys((m.end(), m.start() + len(m[0].rstrip(".!?")))):
            if _print(line[m.start() : end]) in known:
                yield Span(m.start(), end, "Secret Keyword")
