"""Tuning: loader and thread settings searched by a model of the loop, each measured in the unedited program."""
