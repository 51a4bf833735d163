"""debate/index.md: one row per round in a markdown table. Bytes in, bytes out; only the row asked for changes.

Cells escape `\\`, `|` and line breaks (as `\\\\`, `\\|`, `\\n`, `\\r`), so that a cell reads back as it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.brain.front_matter import BOM, quoted
from runner.brain.root import decode
from runner.errors import Refused

COLUMNS = (
    "Round", "Opened", "Scope", "Mode", "Reviewers", "Failed", "Verdicts", "Status", "Patches", "Closed",
    "Close commit",
)  # fmt: skip
_ROUND = re.compile(r"(?<![\w-])round-(\d\d)(?![\w-])")
_BARE_NUMBER = re.compile(r"\d{1,2}")  # the pack's own template numbers its rows
_DELIMITER_CELL = re.compile(r":?-+:?")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CELL_END = re.compile(r"\\.|\|", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\|nr])")
_PLAIN = {"n": "\n", "r": "\r"}
_ESCAPES = str.maketrans({"\\": "\\\\", "|": "\\|", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class Row:
    """cells: column -> text, unescaped; a column the row does not reach is empty. line: 1-based."""

    cells: Mapping[str, str]
    line: int


@dataclass(frozen=True, slots=True)
class Index:
    """rows: by round number, in the file's order."""

    header: tuple[str, ...]
    rows: Mapping[int, Row]


@dataclass(frozen=True, slots=True)
class _Table:
    """lines: the whole file, line ends kept. header, end: places of the header and after the last row."""

    lines: list[str]
    header: int
    end: int
    columns: tuple[str, ...]
    rounds: dict[int, int]


def read(raw: bytes, path: str) -> Index:
    """The rows of an index. Raises Refused with file and line for two rows of one round or an unreadable header."""
    table = _table(decode(raw, path), path)
    return Index(table.columns, {n: Row(_cells(table, at), at + 1) for n, at in table.rounds.items()})


def closed(index: Index, number: int) -> bool:
    """Has this round a close entry: status closed or abandoned, or a close time?"""
    row = index.rows.get(number)
    if row is None:
        return False
    cells = {name.casefold(): text.strip().strip("*_`").casefold() for name, text in row.cells.items()}
    return cells.get("status") in ("closed", "abandoned") or cells.get("closed", "") not in ("", "-", "—", "(pending)")


def set_row(
    raw: bytes | None,
    row: Mapping[str, str],
    *,
    path: str,
    index_id: str,
    created_at: str,
    title: str,
    template: str | None = None,
) -> bytes:
    """The index with this row set. `row["Round"]` is `round-NN`; other keys are columns, absent ones stay as they are.

    raw None: a new file with front matter (id, kind, created_at), a heading and the table; `template` is markdown,
    already substituted, whose text and table take the place of ours. Setting the same row again gives the same bytes.
    """
    number = _number(row["Round"])
    if number is None:
        raise ValueError(f"not a round: {row['Round']}")
    text = _new(index_id, created_at, title, template) if raw is None else decode(raw, path)
    bom = BOM if raw is not None and raw.startswith(BOM) else b""
    table = _table(text, path)
    columns = _add_columns(table, [name for name in row if name.casefold() not in _folded(table.columns)], path)
    if number in table.rounds:
        _edit_row(table.lines, table.rounds[number], columns, row)
    else:
        _append_row(table, columns, row, _newline(text))
    return bom + "".join(table.lines).encode()


def escape(text: str) -> str:
    """A cell's text as it is written, on one line."""
    return text.strip().translate(_ESCAPES)


def _unescape(cell: str) -> str:
    return _ESCAPED.sub(lambda found: _PLAIN.get(found.group(1), found.group(1)), cell.strip())


def _new(index_id: str, created_at: str, title: str, template: str | None) -> str:
    front = f'---\nid: {quoted(index_id)}\nkind: "debate-index"\ncreated_at: {quoted(created_at)}\n---\n\n'
    rule = "".join("---|" for _ in COLUMNS)
    table = f"| {' | '.join(COLUMNS)} |\n|{rule}\n"
    body = f"# {' '.join(title.split())}: debate rounds\n\n" if template is None else _template_body(template)
    if _find_header(_lines(body)) is None:
        return front + body.rstrip("\n") + "\n\n" + table
    return front + body


def _template_body(template: str) -> str:
    """Without its front matter (ours stands there) and its placeholder rows."""
    text = template.replace("\r\n", "\n").removeprefix("\ufeff")
    if text.startswith("---\n") and "\n---\n" in text:
        text = text.split("\n---\n", 1)[1].lstrip("\n")
    lines = _lines(text)
    at = _find_header(lines)
    if at is None:
        return text
    end = _table_end(lines, at)
    rows = [line for line in lines[at + 2 : end] if _number(_split(line)[0]) is not None]
    return "".join(lines[: at + 2] + rows + lines[end:])


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _table(text: str, path: str) -> _Table:
    lines = _lines(text)
    at = _find_header(lines)
    if at is None:
        line = next((n for n, content in enumerate(lines, 1) if content.lstrip().startswith("|")), 1)
        hint = "the table of rounds needs a header row whose first cell is Round, and a |---| row below it"
        raise Refused("no readable table of rounds", path=path, line=line, hint=hint)
    columns = tuple(_unescape(cell) for cell in _split(lines[at]))
    if len(_folded(columns)) != len(columns):
        raise Refused("two columns of one name in the table of rounds", path=path, line=at + 1)
    end = _table_end(lines, at)
    return _Table(lines, at, end, columns, _rounds(lines, at + 2, end, path))


def _find_header(lines: Sequence[str]) -> int | None:
    fence = ""
    for at, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark.group(1).startswith(fence) and line.strip().strip(fence[0]) == "" else fence
        elif mark:
            fence = mark.group(1)
        elif _is_row(line) and _unescape(_split(line)[0]).casefold() == "round" and _is_rule(lines[at + 1 : at + 2]):
            return at
    return None


def _is_rule(lines: Sequence[str]) -> bool:
    return bool(lines) and _is_row(lines[0]) and all(_DELIMITER_CELL.fullmatch(c.strip()) for c in _split(lines[0]))


def _is_row(line: str) -> bool:
    return line.lstrip(" ").startswith("|") and len(line) - len(line.lstrip(" ")) < 4


def _table_end(lines: Sequence[str], header: int) -> int:
    end = header + 2
    while end < len(lines) and _is_row(lines[end]):
        end += 1
    return end


def _rounds(lines: Sequence[str], start: int, end: int, path: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for at in range(start, end):
        number = _number(_unescape(_split(lines[at])[0]))
        if number is None:
            continue
        if number in found:
            message = f"two rows for round-{number:02d} (lines {found[number] + 1} and {at + 1})"
            raise Refused(message, path=path, line=at + 1, hint="keep one of them")
        found[number] = at
    return found


def _number(cell: str) -> int | None:
    if _BARE_NUMBER.fullmatch(cell.strip()):
        return int(cell)
    found = _ROUND.search(cell)
    return int(found.group(1)) if found else None


def _split(line: str) -> list[str]:
    """The cells of a row as written, outer pipes removed; a pipe after a backslash does not end a cell."""
    content = line.strip()[1:]
    cells, start = [], 0
    for found in _CELL_END.finditer(content):
        if found.group() == "|":
            cells.append(content[start : found.start()])
            start = found.end()
    return [*cells, content[start:]] if content[start:].strip() or not cells else cells


def _cells(table: _Table, at: int) -> dict[str, str]:
    texts = [_unescape(cell) for cell in _split(table.lines[at])]
    texts += [""] * (len(table.columns) - len(texts))
    return dict(zip(table.columns, texts, strict=False))


def _folded(columns: Sequence[str]) -> set[str]:
    return {name.casefold() for name in columns}


def _newline(text: str) -> str:
    crlf = text.count("\r\n")
    return "\r\n" if crlf > text.count("\n") - crlf else "\n"


def _extended(line: str, cells: Sequence[str]) -> str:
    """The row with more cells at its right, its own bytes and line end kept."""
    content = line.rstrip("\r\n")
    row = content.rstrip(" \t")
    row += "" if row.endswith("|") and not row.endswith("\\|") else " |"
    return row + "".join(f" {cell} |" for cell in cells) + line[len(content) :]


def _add_columns(table: _Table, missing: Sequence[str], path: str) -> tuple[str, ...]:
    if not missing:
        return table.columns
    for at in range(table.header + 2, table.end):
        if len(_split(table.lines[at])) > len(table.columns):
            raise Refused("a row has more cells than the header", path=path, line=at + 1)
    table.lines[table.header] = _extended(table.lines[table.header], [escape(name) for name in missing])
    table.lines[table.header + 1] = _extended(table.lines[table.header + 1], ["---"] * len(missing))
    return (*table.columns, *missing)


def _edit_row(lines: list[str], at: int, columns: Sequence[str], row: Mapping[str, str]) -> None:
    """Write the cells that differ; the first one names the round already."""
    values = {name.casefold(): text for name, text in row.items()}
    cells = _split(lines[at])
    changed = False
    for place, column in enumerate(columns[1:], 1):
        text = values.get(column.casefold())
        old = _unescape(cells[place]) if place < len(cells) else ""
        if text is not None and text.strip() != old:
            cells += [" "] * (place + 1 - len(cells))
            cells[place] = f" {escape(text)} "
            changed = True
    if changed:
        content = lines[at].rstrip("\r\n")
        indent = content[: len(content) - len(content.lstrip(" "))]
        lines[at] = indent + "|" + "|".join(cells) + "|" + lines[at][len(content) :]


def _append_row(table: _Table, columns: Sequence[str], row: Mapping[str, str], newline: str) -> None:
    values = {name.casefold(): escape(text) for name, text in row.items()}
    cells = [values.get(column.casefold(), "") for column in columns]
    before = table.lines[table.end - 1]
    if not before.endswith("\n"):
        table.lines[table.end - 1] = before + newline
    table.lines.insert(table.end, "| " + " | ".join(cells) + " |" + newline)
