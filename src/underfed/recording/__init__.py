"""Recordings: what was seen in a run, as a folder of JSON Lines that is only ever appended to."""
