"""The HTML report: what is in the file, and what a real browser makes of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from browser import Page
from export_samples import BODY, FRONT, HOSTILE, ask, brief, bulk_row, claim, empty, hostile, of, patch, record, verdict

from runner.export import findings, html
from runner.export.model import Findings

CLAIMS = [
    claim(severity="blocker"),
    claim(id="C-02", kind="risk", raised_by="ops-readiness", problem="Nobody counts.", quote="Nobody counts them.",
          start=BODY.index(b"Nobody"), end=BODY.index(b"Nobody") + 19),
    claim(id="C-03", severity="nit", problem="A word is odd."),
]  # fmt: skip
VERDICTS = [verdict(), verdict(claim="C-02", verdict="DEFER", cause="close"), verdict(claim="C-03", verdict="REJECT")]


SEARCHED = "location.hash.endsWith('q=odd')"


def one() -> Findings:
    return of(record(claims=CLAIMS, verdicts=VERDICTS), front=FRONT, body=BODY)


def many(n: int) -> list[Findings]:
    """n artifacts of ten claims each."""
    claims = [claim(id=f"C-{k:02d}", severity=("blocker", "major", "minor", "nit")[k % 4]) for k in range(10)]
    verdicts = [verdict(claim=c["id"], verdict=("CONCEDE", "DEFER", "REJECT")[k % 3]) for k, c in enumerate(claims)]
    out = []
    for k in range(n):
        body = BODY + f"Number {k}. ".encode() + hashlib.sha256(str(k).encode()).hexdigest().encode() * 40
        data = record(claims=claims, verdicts=verdicts)
        data["artifact"] |= {"path": f"tree/a{k:03d}.md", "title": f"Title {k}", "sha256_body": _sha(body)}
        out.append(findings.of_bulk(bulk_row(path=f"tree/a{k:03d}.md", record=data), "", FRONT, body))
    return out


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data" data-packed="(\w*)">([^<]*)</script>', page)
    assert found is not None
    text = zlib.decompress(base64.b64decode(found[2])).decode() if found[1] else found[2]
    return json.loads(text)


# ---- the file ------------------------------------------------------------------------------------------------------


def test_data():
    """Quote in context, probabilities in the labels' order, the patch's own text only where it differs."""
    (item,) = data_of(html.write([one()]))["items"]
    first = item["findings"][0]
    assert first["ctx"] == ["# Böxes\n\nA box holds ten things. ", "\n\nNobody counts them."]
    assert first["p"] == [0.7, 0.1, 0.1, 0.1]
    assert first["edit"] == {"id": "P-01", "new": "It holds ten.", "hand": "", "flags": []}


def test_data_of_another_range():
    """A patch that takes more than the quote brings its own text and context."""
    start = BODY.index(b"Nobody")
    data = record(patches=[patch(start=start, end=start + 20, replacement="")])
    (item,) = data_of(html.write([of(data, front=FRONT, body=BODY)]))["items"]
    assert item["findings"][0]["edit"]["old"] == "Nobody counts them.\n"


def test_changed_document_has_no_context():
    """When the file is not what was reviewed the quote stands alone."""
    (item,) = data_of(html.write([of(record(), front=FRONT, body=b"Other.\n")]))["items"]
    assert (item["changed"], item["findings"][0]["ctx"]) == (True, None)


def test_nothing_gets_out_of_the_data():
    """No text ends the script, hides or turns the line; the title is escaped."""
    page = html.write([of(hostile())])
    assert page.count("<script") == 2 and page.count("</script") == 2
    assert all(c not in page for c in "\u202e\x00\x1b\ud800\ufffe")
    assert "a]]&gt;b&lt;/script&gt;" in page
    assert data_of(page)["items"][0]["findings"][0]["problem"].startswith("a]]>b</script><!--\n::error::boom")


def test_the_file_asks_for_nothing():
    """No address of anything outside; the policy admits exactly the script and the style that are there."""
    page = html.write([one()])
    assert not re.search(r"src=|href=\"(?!data:,)|url\(|@import|https?://", page.split("<body>")[0])
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert script is not None and style is not None
    for text in (script[1], style[1]):
        assert "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in page
    assert not re.search(r"https?://|innerHTML|document\.write|eval\(", script[1])


def test_size_of_500_artifacts():
    """500 artifacts of ten claims stay far below 5 MB."""
    assert len(html.write(many(500)).encode()) < 5_000_000


# ---- in a browser --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    if browser.CHROMIUM is None:
        pytest.skip("NO CHROMIUM: THE REPORT WAS NOT OPENED IN A BROWSER")
    with browser.page() as page:
        page.size(1280)
        yield page


def opened(tab: Page, tmp_path: Path, found: list[Findings], fragment: str = "", width: int = 1280) -> Page:
    path = tmp_path / "report.html"
    path.write_text(html.write(found), encoding="utf-8")
    tab.size(width)
    tab.go(path.as_uri() + fragment)
    return tab


def rows(tab: Page) -> list[str]:
    """The ids of the claims in the list."""
    return tab.js("[...document.querySelectorAll('#claims .id')].map(e => e.textContent)")


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["one", "many", "hostile", "empty", "nothing", "ask", "brief"])
def test_opens_everywhere(tab, tmp_path, name, width):
    """Every kind of report, wide and narrow: drawn, no console line, no request but the file, no sideways scroll."""
    found = {
        "one": [one()], "many": many(60), "hostile": [of(hostile())], "empty": [of(empty())], "nothing": [],
        "ask": [of(ask(), path="debates/x")], "brief": [of(brief())],
    }[name]  # fmt: skip
    for view in ("", "#view=overview", "#view=claims", "#view=details"):
        opened(tab, tmp_path, found, view, width)
        assert tab.errors == []
        assert [r for r in tab.requests if not r.startswith(("file:", "data:"))] == []
        assert len([r for r in tab.requests if r.startswith("file:")]) == 1
        assert tab.js("document.documentElement.scrollWidth") <= width
        assert tab.js("document.querySelector('main').textContent.length") > 0


@pytest.mark.browser
def test_foreign_text_is_text(tab, tmp_path):
    """Markup in a claim is shown, not obeyed."""
    opened(tab, tmp_path, [of(hostile())])
    assert tab.js("document.querySelectorAll('#app img, #app script').length") == 0
    shown = tab.js("document.querySelector('.one h3').textContent")
    assert "<img src=x onerror=alert(1)>" in shown and HOSTILE[:9] in shown


@pytest.mark.browser
def test_filter(tab, tmp_path):
    """A severity, a verdict, a word: the list and the address follow."""
    opened(tab, tmp_path, [one()])
    assert rows(tab) == ["C-01", "C-02", "C-03"]
    tab.js("document.querySelector('[data-set=deferred]').click()")
    assert (rows(tab), tab.js("location.hash")) == (["C-02"], "#view=claims&v=deferred")
    tab.js("document.querySelector('[data-set=deferred]').click()")
    tab.press("/")
    for letter in "odd":
        tab.press(letter)
    tab.js(f"new Promise(done => {{ const look = () => {SEARCHED} ? done(1) : setTimeout(look, 5); look(); }})")
    assert (rows(tab), tab.js("document.activeElement.value")) == (["C-03"], "odd")
    tab.press("Escape")
    tab.press("Escape")
    assert rows(tab) == ["C-01", "C-02", "C-03"]


@pytest.mark.browser
def test_keys(tab, tmp_path):
    """j and k walk the claims, ? shows the keys, 3 is the third view."""
    opened(tab, tmp_path, [one()])
    said = "document.querySelector('.one').dataset.claim"
    walked = []
    for key in "jjkk":
        tab.press(key)
        walked.append(tab.js(said))
    assert walked == ["C-01", "C-02", "C-01", "C-01"]
    tab.press("?")
    assert tab.js("document.querySelector('dialog').open") is True
    tab.js("document.querySelector('dialog').close()")
    tab.press("3")
    assert "view=details" in tab.js("location.hash")


@pytest.mark.browser
def test_deep_link(tab, tmp_path):
    """The address of a claim opens that claim, under the same filters."""
    opened(tab, tmp_path, [one()])
    tab.press("j")
    tab.press("j")
    address = tab.js("location.hash")
    opened(tab, tmp_path, [one()], address)
    assert tab.js("document.querySelector('.one').dataset.claim") == "C-02"
    assert tab.js("document.querySelector('#claims [aria-selected=true] .id').textContent") == "C-02"
    assert tab.js("document.querySelector('.one mark').textContent") == "Nobody counts them."
    opened(tab, tmp_path, [one()], "#view=claims&sev=nit&c=" + "0" * 12)
    assert rows(tab) == ["C-03"]


@pytest.mark.browser
def test_detail(tab, tmp_path):
    """The quote is marked in its context, the numbers are the file's, the diff marks words."""
    opened(tab, tmp_path, [one()])
    lines = tab.js("[...document.querySelectorAll('.doc .ln')].map(l => l.children[0].textContent + ' ' + l.innerText)")
    assert [line.split(" ")[0] for line in lines] == ["6", "7", "8", "9", "10"]
    assert tab.js("document.querySelector('.doc mark').textContent") == "A box holds nine things."
    assert "70 %" in tab.js("document.querySelector('.one').innerText")
    assert tab.js("document.querySelectorAll('.diff del').length") > 0


@pytest.mark.browser
def test_incomplete_is_told(tab, tmp_path):
    """What was not done stands above everything, in every view."""
    data = empty(coverage={"not_shown": [{"persona": "p", "start": 0, "end": 9}], "personas": [], "context": []})
    opened(tab, tmp_path, [of(data)])
    banner = tab.js("document.querySelector('.banner').innerText")
    assert "INCOMPLETE" in banner and "p did not read bytes 0 to 9 of the body" in banner


@pytest.mark.browser
def test_500_artifacts(tab, tmp_path):
    """500 artifacts are drawn in under a second, only the rows that are seen exist, and a filter answers at once."""
    opened(tab, tmp_path, many(500))
    assert tab.js("performance.now()") < 3000  # under a second on an idle machine; a busy one gets room
    assert tab.js("document.querySelectorAll('.row').length") < 60
    took = tab.js(
        "(() => { const t = performance.now(); document.querySelector('[data-set=blocker]').click();"
        " return performance.now() - t; })()"
    )
    assert took < 500
    tab.js("location.hash = 'view=claims&a=tree/a499.md'")
    tab.drawn()
    assert tab.js("document.querySelector('.one .facts:nth-of-type(2)').innerText").find("tree/a499.md") > 0
    tab.js("location.hash = 'view=claims'")
    tab.js("scrollTo(0, document.body.scrollHeight)")
    tab.drawn()
    assert tab.js("[...document.querySelectorAll('#claims .row')].at(-1).offsetTop") == (5000 - 1) * 112


@pytest.mark.browser
def test_print(tab, tmp_path):
    """On paper every claim that is shown is there in full."""
    opened(tab, tmp_path, [one()], "#view=claims&v=conceded.deferred")
    tab.js("dispatchEvent(new Event('beforeprint'))")
    assert tab.js("[...document.querySelectorAll('#print .one')].map(e => e.dataset.claim)") == ["C-01", "C-02"]
