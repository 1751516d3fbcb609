"""Stamped facts and their age."""
