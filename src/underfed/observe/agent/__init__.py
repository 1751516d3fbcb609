"""The agent: runs inside every Python process of the command that imports torch, and only watches.

Loaded from its file path by the boot module, under the name `_underfed_agent`, on any Python from 3.9: it imports the
standard library alone. It installs no signal handler, opens no port, starts no process, and synchronizes nothing.
"""

import atexit
import os
import sys


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
    from . import core, facts, sampler

    if not core.S.on:
        return
    try:
        sampler.halt()
        if core.S.index or core.S.worker is None:
            facts.once_a_while(force=True)
        sampler.flush()
        core.write("end", steps=core.S.index)
    except Exception as error:
        core.fault("exit", error)


def _switch(torch, folder):
    """Set what `underfed try` asks for; below the agent's own hooks, so that they see the result."""
    from . import core, hidden, overrides, overrides_loader, overrides_model, overrides_torch

    hidden.hide((overrides, overrides_loader, overrides_model, overrides_torch))
    overrides.install(torch, folder, core.S.options)


def install(folder, options=""):
    """Hook torch, which has just been imported, and write to `folder`; called once a process."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "autograd"):
        return
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
        optim,
        sampler,
        tensors,
        window,
        writer,
    )

    hidden.hide((clock, collect, comms, core, ddp, facts, frames, loader, optim, sampler, tensors, window, writer))
    core.start(folder, _parse(options))
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
    os.register_at_fork(
        before=sampler.before_fork,
        after_in_parent=sampler.after_fork_in_parent,
        after_in_child=sampler.after_fork_in_child,
    )
    atexit.register(_at_exit)
