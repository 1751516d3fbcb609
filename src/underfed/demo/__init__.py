"""A starved training loop to try underfed on, and the comparison of its timings."""
