"""What the agent puts in place of functions of torch, and putting the originals back where a watch ends."""

_MISSING = object()
_made = []


def put(owner, name, value):
    """Set an attribute of a module or class and remember what was there."""
    _made.append((owner, name, vars(owner).get(name, _MISSING), value))
    setattr(owner, name, value)


def undo():
    """Put every original back, the latest first.

    What somebody else has put in place since stays: it may call ours, which then only passes on.
    """
    while _made:
        owner, name, original, value = _made.pop()
        if vars(owner).get(name) is not value:
            continue
        if original is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, original)
