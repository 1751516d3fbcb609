"""Interval algebra on integer nanoseconds: arrays in, numbers out, no I/O."""
