"""The standard library over plain data: text that is known is read and written while capturing."""

from __future__ import annotations

import base64
import collections
import io
import json
import os
import pathlib
import pprint
import re
import struct
import unicodedata
import zlib

import torch
from harness import BREAK, program

import stoker

LAYER = re.compile(r"layer(?P<number>\d+)")


@program("regular expressions over known text")
def test_regular_expressions(x):
    found = LAYER.match("layer12.weight")
    parts = found.group(1), found.span(), found["number"], found.groupdict(), LAYER.search("other"), found.end()
    made = (
        re.sub(r"\d", "#", "a1b2"),
        re.findall("[a-z]", "a1b2"),
        re.split(",", "a,b"),
        LAYER.sub(r"\1", "layer3"),
        bool(re.match("a", "b")),
    )
    return x * int(found.group("number")), parts, made, LAYER.fullmatch("layer3") is None, re.escape("a.b")


@program("json of plain data")
def test_json(x):
    told = json.dumps({"size": x.shape[0], "list": [1, 2.5, None, True], "pair": (1, 2)}, sort_keys=True, indent=1)
    read = json.loads(told)
    read["list"].append(3)
    try:
        json.loads('{"a": ')
    except json.JSONDecodeError as error:
        wrong = error.msg, error.pos, error.lineno, str(error)
    return x * read["size"], told, read, wrong


@program("json of the user's objects", BREAK)
def test_json_of_objects(x):
    y = x + 1
    return y, json.dumps({"a": 1}, default=str), json.loads("[1]", object_hook=dict)


@program("text written to a buffer made inside")
def test_buffer(x):
    buffer = io.StringIO("abc")
    buffer.write("Z")
    place = buffer.tell()
    buffer.seek(0, 2)
    print("end", x.shape[0], file=buffer, sep="-")
    buffer.writelines(["one\n", "two\n"])
    lines = io.StringIO(buffer.getvalue())
    return x * place, buffer.getvalue(), lines.readline(), lines.read(3), lines.tell(), pprint.pformat({"a": [1] * 30})


def test_buffer_that_leaves() -> None:
    def make(x):
        buffer = io.StringIO("abc")
        buffer.seek(1)
        return x * 2, buffer

    found = stoker.compile(make, backend="eager", fullgraph=True)(torch.ones(2))[1]
    assert (found.getvalue(), found.tell(), found.read()) == ("abc", 1, "bc")


@program("classes made by calls")
def test_made_classes(x):
    Point = collections.namedtuple("Point", "a b", defaults=[3])
    Named = type("Named", (), {"scale": 2})
    point = Point(1)
    return (
        x * point.b * Named.scale,
        point._asdict(),
        repr(point),
        Point._fields,
        Named.__name__,
        Point.__module__ == __name__,
    )


@program("bytes, checksums and paths of plain data")
def test_plain_library(x):
    packed = struct.pack("<If", 3, 0.5)
    made = (
        base64.b64encode(packed),
        zlib.crc32(packed),
        struct.unpack("<If", packed),
        unicodedata.normalize("NFC", "e\u0301"),
    )
    return (
        x,
        made,
        os.path.join("a", "b"),
        os.path.splitext("b.c"),
        os.path.basename("a/b"),
        pathlib.PurePosixPath("a") / "b",
    )
