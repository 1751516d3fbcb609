"""Readers: a profiler's trace file in, a Timeline out."""
