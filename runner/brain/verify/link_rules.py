"""Rules for soft links: V-03, V-15, V-16."""

from __future__ import annotations

from collections.abc import Iterator

from runner.brain.verify import aliases, words
from runner.brain.verify.model import WEB, Brain, Violation, uris


def resolve(brain: Brain) -> Iterator[Violation]:
    """V-03: every soft link leads somewhere. Links to the web are never followed."""
    layers = aliases.layers(brain.root)
    for page in brain.pages:
        for uri in uris(page):
            if uri.startswith(WEB):
                continue
            line = page.line_of(uri, "soft_links")
            if uri.startswith("/") or ":" not in uri:
                if not brain.on_disk(uri.lstrip("/")):
                    yield Violation(page.rel, line, "V-03", f"the link {words.shown(uri)} leads nowhere")
            elif not layers:
                message = f"the link {words.shown(uri)} cannot be checked: no config.yaml, and no projects.yaml"
                yield Violation(page.rel, line, "V-03", message, warning=True)
            else:
                message = aliases.problem(layers, uri)
                if message:
                    yield Violation(page.rel, line, "V-03", message)


def not_to_itself(brain: Brain) -> Iterator[Violation]:
    """V-16: no soft link leads to the page it stands in."""
    for page in brain.pages:
        for uri in uris(page):
            if brain.linked(uri) == page.rel:
                line = page.line_of(uri, "soft_links")
                yield Violation(page.rel, line, "V-16", f"the link {words.shown(uri)} leads to this file itself")


def no_cycle(brain: Brain) -> Iterator[Violation]:
    """V-15: soft links inside the brain never lead back. One violation per way back, on the page it leads to."""
    links = {page.rel: _links(brain, page.rel) for page in brain.pages}
    done: set[str] = set()
    for start in links:
        if start in done:
            continue
        trail, ahead = [start], [iter(links[start])]
        place = {start: 0}
        while trail:
            target = next(ahead[-1], None)
            if target is None:
                ahead.pop()
                done.add(trail[-1])
                del place[trail.pop()]
            elif target in place:
                yield _cycle(trail[place[target] :])
            elif target not in done:
                place[target] = len(trail)
                trail.append(target)
                ahead.append(iter(links[target]))


def _links(brain: Brain, rel: str) -> list[str]:
    targets = (brain.linked(uri) for uri in uris(brain.by_path[rel]))
    return [target for target in targets if target is not None and target != rel]


def _cycle(trail: list[str]) -> Violation:
    shown = trail if len(trail) <= 6 else [*trail[:3], f"… {len(trail) - 5} more …", *trail[-2:]]
    return Violation(trail[0], 0, "V-15", "soft links go in a circle: " + " -> ".join([*shown, trail[0]]))
