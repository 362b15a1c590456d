"""Which parameters hold the address of an input."""

from __future__ import annotations

import struct

from stoker.cudagraph.driver import GraphNode
from stoker.cudagraph.words import RECORD, Region, Word, find_words

REGIONS = {0: Region(0x1000, 0x5000, 256), 1: Region(0x2000, 0x6000, 64)}


def kernel(*parameters: bytes) -> GraphNode:
    return GraphNode("kernel", 1, parameters=parameters)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def test_addresses_and_what_only_looks_like_one() -> None:
    first = [kernel(words(0x1000), words(0x1010, 7, 0x2040), words(0x1000))]
    second = [kernel(words(0x5000), words(0x5010, 7, 0x6040), words(0x1000))]
    found = find_words(first, second, REGIONS)
    assert found.words == {0: (Word(0, 0, 0, 0), Word(0, 1, 0, 16)), 1: (Word(0, 1, 16, 64),)}
    assert not found.refused


def test_a_word_that_follows_nothing() -> None:
    """It points into the input once, and elsewhere the other time: what it means is unknown."""
    found = find_words([kernel(words(0x1008))], [kernel(words(0x7008))], REGIONS)
    assert found.words == {1: ()} and "parameter 0 of node 0" in found.refused[0]


def test_a_word_that_may_be_of_two_inputs() -> None:
    """The end of one is the start of the other, in both recordings."""
    regions = {0: Region(0x1000, 0x5000, 64), 1: Region(0x1040, 0x5040, 64), 2: Region(0x3000, 0x7000, 64)}
    found = find_words([kernel(words(0x1040, 0x3000))], [kernel(words(0x5040, 0x7000))], regions)
    assert found.words == {2: (Word(0, 0, 8, 0),)}
    assert all("two inputs" in found.refused[number] for number in (0, 1))


def test_copies_have_addresses_in_their_record() -> None:
    first, second = GraphNode("copy", 1, record=words(1, 0x2000)), GraphNode("copy", 1, record=words(1, 0x6000))
    assert find_words([first], [second], REGIONS).words[1] == (Word(0, RECORD, 8, 0),)


def test_recordings_that_cannot_be_compared() -> None:
    one = [kernel(words(0x1000))]
    assert "1 and 0 nodes" in find_words(one, [], REGIONS).refused[0]
    assert "node 0 differs" in find_words(one, [kernel(words(0x5000), b"")], REGIONS).refused[1]
    opaque = [GraphNode("opaque", 1)]
    assert "looked into" in find_words(opaque, opaque, REGIONS).refused[0]
