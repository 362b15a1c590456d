"""CUDA graphs: a plan's launches are recorded once and replayed with one call of the driver.

`recorder` decides when to record and whether it pays; `recording` makes one recording; `words` finds the parameters of a recorded
graph that hold the address of an input; `driver` is what all this needs of CUDA, `cuda` the real thing. The way is told in
docs/cudagraphs.md.
"""
