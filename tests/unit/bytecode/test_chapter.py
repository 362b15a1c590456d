"""The example that opens the package."""

import doctest

import stoker.bytecode


def test_the_example_runs():
    failed, attempted = doctest.testmod(stoker.bytecode)
    assert attempted and not failed
