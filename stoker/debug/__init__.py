"""Looking inside: what was captured, where and why it broke, what is guarded."""
