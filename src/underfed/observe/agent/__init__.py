"""The agent: runs inside every Python process of the command that imports torch, and only watches.

Loaded from its file path by the boot module, under the name `_underfed_agent`, on any Python from 3.9: it imports the
standard library alone. It installs no signal handler, opens no port, starts no process, and synchronizes nothing.
`underfed.watch()` loads it under its own name and arms it for a while, with `install` and `remove`.
"""

import atexit
import os
import sys

_prepared = False


def _parse(options):
    found = {}
    for part in (options or "").split(","):
        name, _, value = part.partition("=")
        if name:
            found[name] = value
    return found


def _is_child():
    """Tell whether multiprocessing started this process: a loader's worker, which says so with its first fetch."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _at_exit():
    from . import core, facts, sampler, window

    if not core.S.on:
        return
    try:
        window.close()
        sampler.halt()
        if core.S.index or core.S.worker is None:
            sampler.whole("facts", lambda: facts.once_a_while(force=True))
        sampler.flush()
        core.write("end", steps=core.S.index)
    except Exception as error:
        core.fault("exit", error)


def _switch(torch, folder):
    """Set what `underfed try` asks for; below the agent's own hooks, so that they see the result."""
    from . import core, hidden, overrides, overrides_loader, overrides_model, overrides_reference, overrides_torch

    hidden.hide((overrides, overrides_loader, overrides_model, overrides_reference, overrides_torch))
    overrides.install(torch, folder, core.S.options)


def _prepare():
    """Do once a process what cannot be taken back: hooks around forks, which do nothing while nobody watches."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    from . import (
        clock,
        collect,
        comms,
        core,
        ddp,
        facts,
        frames,
        hidden,
        loader,
        operators,
        optim,
        patches,
        places,
        sampler,
        tensors,
        window,
        writer,
    )

    hidden.hide((clock, collect, comms, core, ddp, facts, frames, hidden, loader, optim, patches, sampler, tensors))
    hidden.hide((window, writer, operators, places))
    os.register_at_fork(before=operators.before_fork)
    os.register_at_fork(
        before=sampler.before_fork,
        after_in_parent=sampler.after_fork_in_parent,
        after_in_child=sampler.after_fork_in_child,
    )


def install(folder, options="", ended=None):
    """Hook torch, which has been imported, and write to `folder`; `ended` is as in `core.start`."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "autograd"):
        return
    from . import collect, comms, core, ddp, facts, loader, operators, optim, sampler, tensors, window

    _prepare()
    core.start(folder, _parse(options), ended)
    if core.S.options.get("steps"):
        core.S.on_boundary.append(sampler.stop_at_limit)
    if "trial" in core.S.options:
        _switch(torch, folder)
    optim.on_optimizer = facts.note_optimizer
    if not _is_child():
        core.header()
    parts = [("optim", lambda: optim.install(torch)), ("loader", loader.install), ("collect", collect.install)]
    if torch.distributed.is_available():
        parts.append(("ddp", lambda: ddp.install(torch)))
    if torch.version.cuda or torch.version.hip:
        parts.append(("tensors", lambda: tensors.install(torch)))
        parts.append(("window", lambda: window.install(torch)))
    parts.append(("operators", lambda: operators.install(torch)))
    for name, part in parts:
        try:
            part()
        except Exception as error:
            core.fault(name, error)

    def when_distributed(_kind):
        if core.S.index & 31:  # the question costs more than the rest of a boundary; a group is made once
            return
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            core.S.on_boundary = [hook for hook in core.S.on_boundary if hook is not when_distributed]
            comms.install(torch)

    core.S.on_boundary.append(when_distributed)
    atexit.register(_at_exit)


def catch_up():
    """Write what has gathered, for a reader of the recording; what follows is watched as before."""
    from . import sampler

    ran = sampler.halt()
    sampler.flush()
    if ran:
        sampler.ensure()


def remove():
    """End the watch: write what is left, and put everything back as it was before `install`."""
    from . import clock, collect, core, ddp, facts, frames, loader, optim, patches, sampler, window

    for part in (window.close, _at_exit):
        try:
            part()
        except Exception as error:
            core.fault("remove", error)
    core.S.on = False
    if core.S.ended is not None and core.S.owner == os.getpid():
        core.S.ended[0] = 1  # for workers that live on
    sampler.halt()
    clock.CLOCK.thread = None  # whatever still calls one of our wrappers, on any thread, is only passed on
    for undo in (patches.undo, optim.remove, collect.remove):
        undo()
    for module in (loader, ddp, facts, frames, sampler):
        module.forget()
    atexit.unregister(_at_exit)
    core.S.writer.close()
