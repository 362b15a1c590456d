"""What must still hold for a compiled version to be reused.

A *source* says where a value is found when the function is called; a *guard* is a source and a check on what is found
there. `compile_guards` merges all guards of one version by common prefix into one tree, which the C++ guard program
walks without running Python; on the way it fetches the values that the replacement code needs.

    >>> from stoker.guard.source import Local, Item
    >>> Item(Local(0, "xs"), 3).text
    'xs[3]'

Reading order: source, guard, program, explain.
"""
