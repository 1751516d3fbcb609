"""Keeping torch.compile's tracer out of the agent: it must not compile, count or break on code that only watches."""

from types import CodeType, FunctionType


def _codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _functions(module):
    for value in list(vars(module).values()):
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield from (part for part in vars(value).values() if isinstance(part, FunctionType))


def _skipper():
    """Return torch's way to mark a code object as skipped, or None where it has none; dynamo itself is not imported."""
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "skip_code"):
        return eval_frame.skip_code
    if not hasattr(eval_frame, "set_code_exec_strategy"):
        return None
    action = eval_frame._FrameAction
    # Only the frame itself: what the user's own functions below it do is theirs.
    skip = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
    return lambda code: eval_frame.set_code_exec_strategy(code, skip)


def hide(modules):
    """Mark every function of these modules, closures included, as one that dynamo leaves alone."""
    try:
        skip = _skipper()
    except ImportError:
        skip = None
    if skip is None:
        return
    for module in modules:
        for function in _functions(module):
            for code in _codes(function.__code__):
                skip(code)
