"""A run that is already going, seen from outside: its processes, its stacks by py-spy, its counters. Only reads."""
