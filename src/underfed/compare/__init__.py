"""Two recordings, traces or trials against each other: the same work or not, what changed, is it noise."""
