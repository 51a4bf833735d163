"""The cells of a llama.cpp KV pool: who owns them, who shares them, and when they come back.

A *node* is a run of cells that others build on: a prefix that requests share, or a finished sequence that a later
request continues. Nodes form a tree; each owns the cells after its parent's end, and `seq_cp` makes the whole path
visible to a sequence without copying anything.

What nodes own and what running requests may still need never exceeds the pool, so llama_decode always finds room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import llama_cpp.llama_cpp as C

from runner.errors import RunnerError
from runner.values import Segment


@dataclass(eq=False, slots=True)
class Node:
    """Cells that sequences share. feed: tokens not decoded yet; users: tasks and nodes that stand on it."""

    seq: int
    parent: Node | None
    length: int  # tokens from the root to its end, once fed
    feed: list[int]
    flows: set[str] = field(default_factory=set)
    users: int = 0
    used_at: int = 0

    @property
    def cells(self) -> int:
        return self.length - (self.parent.length if self.parent else 0)

    @property
    def pos(self) -> int:
        return self.length - len(self.feed)


@dataclass(eq=False, slots=True)
class Kept:
    """A finished sequence: its prompt as pieces, what was replied, and all its tokens."""

    node: Node
    pieces: list[Segment]
    text: str
    tokens: list[int]


class Cells:
    """n_cells: of the pool; n_seqs: sequence ids. prefixes: nodes by their tokens; kept: by flow and key.

    building: nodes that have tokens to be fed. promised: cells of running requests, fed or still to come.
    """

    def __init__(self, memory: Any, n_cells: int, n_seqs: int) -> None:
        self._memory = memory
        self.n_cells = n_cells
        self.free_seqs = list(range(n_seqs - 1, -1, -1))
        self.prefixes: dict[tuple[int, ...], Node] = {}
        self.kept: dict[tuple[str, str], Kept] = {}
        self.building: list[Node] = []
        self.promised = 0
        self.untouched = True  # nothing was fed since the pool was empty
        self.clock = 0  # of the engine's steps: which node was used last

    def nodes(self) -> Iterator[Node]:
        yield from self.prefixes.values()
        for kept in self.kept.values():
            yield kept.node

    def used(self) -> int:
        """Cells that are taken or promised."""
        return sum(node.cells for node in self.nodes()) + self.promised

    # ---- sequences -------------------------------------------------------------------------------------------------

    def start(self, base: Node | None, cells: int) -> int:
        """A new sequence on top of a node, for a request that may need so many cells of its own."""
        seq = self.free_seqs.pop()
        self.untouched = False
        self.promised += cells
        if base is not None:
            C.llama_memory_seq_cp(self._memory, base.seq, seq, -1, -1)
            base.users += 1
        return seq

    def end(self, seq: int, base: Node | None, cells: int) -> None:
        """The request is over and keeps nothing."""
        self.promised -= cells
        self._free(seq, base)

    def take_back(self, seq: int, pos: int) -> None:
        """Drop the sequence's tokens from this position on."""
        if not C.llama_memory_seq_rm(self._memory, seq, pos, -1):
            raise RunnerError("this model cannot take tokens back", code="engine")

    def _free(self, seq: int, base: Node | None) -> None:
        C.llama_memory_seq_rm(self._memory, seq, -1, -1)
        self.free_seqs.append(seq)
        if base is not None:
            base.users -= 1

    # ---- nodes -----------------------------------------------------------------------------------------------------

    def grow(self, parent: Node | None, prefix: tuple[int, ...]) -> Node:
        """A new node for this prefix; there must be room."""
        start = parent.length if parent else 0
        seq = self.free_seqs.pop()
        self.untouched = False
        if parent is not None:
            C.llama_memory_seq_cp(self._memory, parent.seq, seq, -1, -1)
            parent.users += 1
        node = Node(seq, parent, len(prefix), list(prefix[start:]), used_at=self.clock)
        self.prefixes[prefix] = node
        self.building.append(node)
        return node

    def keep(self, name: tuple[str, str], kept: Kept, cells: int) -> None:
        """A request's sequence becomes a node for those who continue it; `cells` were promised to it."""
        self.promised -= cells
        kept.node.used_at = self.clock
        self.kept[name] = kept
        if kept.node.feed:
            self.building.append(kept.node)

    def room(self, cells: int, keep: Node | None, awaited: Collection[int], busy: bool) -> bool:
        """Is there room for so many cells and a sequence? If not, nodes that nobody stands on go, those that nobody
        waits for (by id) before the others. busy: cells come back by themselves when what runs has ended."""
        while self.used() + cells > self.n_cells or not self.free_seqs:
            idle = [n for n in self.nodes() if n.users == 0 and n is not keep]
            free = [n for n in idle if id(n) not in awaited]
            if not idle or (not free and (busy or self.building)):
                return False
            self._drop(min(free or idle, key=lambda n: (n.used_at, -n.cells)))
        return True

    def _drop(self, node: Node) -> None:
        self.prefixes = {k: n for k, n in self.prefixes.items() if n is not node}
        self.kept = {k: v for k, v in self.kept.items() if v.node is not node}
        self.building = [n for n in self.building if n is not node]
        self._free(node.seq, node.parent)

    def sweep(self) -> None:
        """Drop nodes that no flow holds and nobody stands on, leaves of the tree first.

        llama.cpp puts new cells behind those of before and attends over all up to the last, so a pool that has become
        empty begins at its first cell again: the next document is as quick as the first.
        """
        while gone := [n for n in self.nodes() if not n.flows and n.users == 0]:
            for node in gone:
                self._drop(node)
        if not self.untouched and self.used() == 0:
            C.llama_memory_clear(self._memory, False)
            self.untouched = True

    def forget(self, flow: str, key: str) -> None:
        kept = self.kept.get((flow, key))
        if kept is not None:
            kept.node.flows.clear()

    def close(self) -> None:
        """Forget everything: the memory is about to be freed."""
        self.prefixes, self.kept, self.building, self.promised, self.untouched = {}, {}, [], 0, True

    def release(self, flow: str) -> None:
        for node in self.nodes():
            node.flows.discard(flow)
        self.sweep()
