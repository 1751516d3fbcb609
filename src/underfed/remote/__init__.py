"""Looks at another machine by the system's ssh, with nothing installed there but Python.

`parcel` is what travels there, `there` is what runs there, `seen` brings back what it saw, `session` is the ssh side.
"""
