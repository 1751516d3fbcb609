"""Trials: a change and its baseline, run in turns, with an interval for the gain and a judgement of the numbers."""
