"""A model whose every word is known: the replies do not depend on how the prompts are worded.

Put `answer` in the place of runner.engines.fake.answer. Each reviewer raises two claims; the claims are judged in turn
CONCEDE, CONCEDE-IN-PART, DEFER, REJECT, and so on. Faults of a profile work as ever.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from runner.values import LABELS, Reply, Request


def claim(quote: str, severity: str, action: str, replacement: str = "") -> dict[str, str]:
    problem = f"Doubt about {quote.split()[1]}."
    rest = {"severity": severity, "action": action, "replacement": replacement}
    return {"quote": quote, "kind": "ambiguity", "problem": problem} | rest


CLAIMS = {
    "red-team": [
        claim("The limit is the same for all shops.", "blocker", "replace", "Each shop has its own limit."),
        claim("Most failures are noticed quickly.", "major", "delete"),
    ],
    "fresh-eyes-reader": [
        claim("Nobody has measured whether it is enough.", "minor", "none"),
        claim("The old version stays for a week.", "nit", "replace", "The old version stays for a month."),
    ],
    "simplicity-critic": [
        claim("A request may take two seconds.", "major", "replace", "A request may take one second."),
        claim("A sentence that is not there.", "minor", "none"),
    ],
}


def answer(request: Request) -> Reply:
    key = request.key.split("~")[0]
    if request.choices:
        return _said(request, request.choices[0], scores=_scores(key))
    return _said(request, json.dumps(_reply(key, request)))


def _said(request: Request, text: str, scores: tuple[float, ...] = ()) -> Reply:
    return Reply(request.key, text, "stop", tokens_in=10, tokens_out=5, scores=scores)


def _scores(key: str) -> tuple[float, ...]:
    """Of the labels, in the order of LABELS: even without a claim, else sure of the one whose turn it is."""
    found = re.search(r"C-(\d+)/", key)
    wanted = None if found is None else (int(found[1]) - 1) % 4
    return tuple(math.log(0.25 if wanted is None else 0.85 if i == wanted else 0.05) for i in range(4))


def _reply(key: str, request: Request) -> dict[str, Any]:
    if key.startswith("reviewer/"):
        name = key.removeprefix("reviewer/")
        claims = CLAIMS.get(name, CLAIMS["simplicity-critic"])
        return {"observations": [f"Seen by {name}."], "claims": claims, "open_questions": ["Who decides?"]}
    if key.endswith("/amended"):
        return {"action": "replace", "replacement": "Most failures are noticed within a day."}
    if key.startswith("synthesizer"):
        theme = {"title": "Numbers.", "text": "They are guesses.", "claims": ["C-01"]}
        return {"themes": [theme], "tensions": ["Speed against care."], "revisit": ["C-04"]}
    number = int(key[-2:])
    judged = {} if "verdict" not in str(request.format) else {"verdict": LABELS[(number - 1) % 4]}
    return {"reason": f"Because of C-{number:02d}."} | judged
