"""The packed tables against what the interpreter reads from them."""

import pytest

from stoker.bytecode import Positions
from stoker.bytecode.table import Range, read_exception_table, write_exception_table, write_location_table

BLANK = (lambda: None).__code__


def test_exception_table_round_trip():
    ranges = [
        Range(0, 1, 5, 0, False),
        Range(1, 70, 64, 3, True),
        Range(4_095, 4_097, 4_096, 63, False),
        Range(262_144, 20_000_000, 16_777_216, 64, True),
    ]
    assert read_exception_table(write_exception_table(ranges)) == ranges


def test_empty_exception_table():
    assert write_exception_table([]) == b""
    assert read_exception_table(b"") == []


def test_exception_table_of_the_compiler():
    def f():
        try:
            len()
        except ValueError:
            return 1
        finally:
            len()

    table = f.__code__.co_exceptiontable
    assert write_exception_table(read_exception_table(table)) == table


@pytest.mark.parametrize(
    "spot",
    [
        Positions(10, 10, 0, 3),  # short
        Positions(10, 10, 79, 94),
        Positions(10, 10, 80, 90),  # one line, same
        Positions(11, 11, 4, 127),
        Positions(12, 12, 4, 40),
        Positions(13, 13, 4, 40),  # long, because three lines on
        Positions(10, 10, 4, 128),
        Positions(9, 9, 4, 5),  # backward
        Positions(10, 14, 4, 5),
        Positions(1_000_000, 1_000_100, 5_000, 70),
        Positions(10, 10, None, None),  # no columns
        Positions(3, 3, None, None),
        Positions(10, 12, None, None),
        None,
    ],
)
@pytest.mark.parametrize("units", [1, 8, 9, 30])
def test_a_location_is_read_back(spot, units):
    table = write_location_table(10, [(units, spot), (1, Positions(11, 11, 1, 2))])
    code = BLANK.replace(co_code=BLANK.co_code[:2] * (units + 1), co_linetable=table, co_firstlineno=10)
    expected = (None,) * 4 if spot is None else tuple(spot)
    assert list(code.co_positions()) == [expected] * units + [(11, 11, 1, 2)]
