"""Every opcode that decoding yields, on any supported CPython, has a handler or a refusal with a reason."""

from __future__ import annotations

import pytest

from stoker.bytecode import SUPPORTED, opnames
from stoker.capture.opcodes import HANDLERS
from stoker.capture.opcodes.refused import REFUSED


@pytest.mark.parametrize("version", SUPPORTED, ids=lambda v: ".".join(map(str, v)))
def test_every_opcode_has_a_handler(version):
    missing = sorted(opnames(version) - set(HANDLERS))
    assert missing == []


def test_no_handler_without_an_opcode():
    known = set().union(*(opnames(version) for version in SUPPORTED))
    neutral = {"CACHE", "EXTENDED_ARG", "JUMP_FORWARD", "JUMP_BACKWARD", "STORE_FAST_MAYBE_NULL"}
    refused = {name for names in REFUSED.values() for name in names.split()}
    assert sorted(set(HANDLERS) - known - neutral - refused) == []


def test_refusals_have_reasons():
    assert all(len(reason) > 20 for reason in REFUSED)
