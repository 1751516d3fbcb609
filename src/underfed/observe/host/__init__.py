"""Facts about the machine from /proc, /sys and cgroups. Standard library only and light to import: `run` uses it live.

Every reader takes `root`, the folder that holds `proc` and `sys`, so that recorded trees can be read like the live
machine, and returns None for what is not known: a missing file, no permission, unreadable content. Zero means zero.
"""
