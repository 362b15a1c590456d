"""When Python calls a function: look it up, compile it, or leave it to CPython.

`_C.Compiler` asks `Frames.on_miss` when no compiled version of a code object fits; the answer is a new version or the
decision to leave the frame alone.
"""

from stoker.frame.entry import Frames

__all__ = ["Frames"]
