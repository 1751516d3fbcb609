"""Reads training code without running it, and finds what will make it slow."""
