"""The kinds of Values, one kind of Python object a file.

Each answers what CPython asks of such an object (an attribute, its truth, its elements, an operator) or breaks, and knows how
to write itself into replacement code. What needs the evaluator is asked of `m`, the machine.

>>> from stoker.capture.values.constant import Constant
>>> Constant(3).constant(), Constant(3).python_type()
(3, <class 'int'>)

Reading order: `value` (the protocol), `constant`, `varying`, `size`, `text`, `sequence`, `slices`, `index`, `mapping`, `sets`, `deque`, `descriptor`, `iterator`, `rounds`, `running`, `pending`, `traceback`,
`instance`, `group`, `classes`, `function`, `remembered`, `cached`, `getter`, `reference`, `module`, `proxy`, `context`, `tensor`, `subclass`, `array`, `opaque`, `ambient`, `buffer`, `seeded`.
"""
