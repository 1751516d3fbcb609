"""Start of the agent in one Python process (3.9 and newer): keep it in the children, load it once torch is there.

No thread, no timer, no signal handler, no output; a fault here leaves the process as it would be without us.
"""

import os
import sys

AGENT = b"UNDERFED_AGENT"
OPTIONS = b"UNDERFED_OPTIONS"
PYTHONPATH = b"PYTHONPATH"


def start(here):
    """Put the hooks in place; `here` is the folder on PYTHONPATH, the agent's package lies beside it."""
    data = os.environ._data
    recording = data.get(AGENT)
    if not recording:
        return
    folder = os.fsencode(here)
    _keep_in_c_environment(folder, data)
    _keep_in_explicit_environments(folder)
    agent = os.path.join(os.path.dirname(here), "agent")
    options = os.fsdecode(data.get(OPTIONS, b""))

    def on_torch(_):
        _load_agent(agent, os.fsdecode(recording), options)

    def on_posixsubprocess(module):
        _wrap_fork_exec(module, folder)

    hooks = {"torch": on_torch, "_posixsubprocess": on_posixsubprocess}
    for name in list(hooks):
        if name in sys.modules:  # a .pth file was faster
            hooks.pop(name)(sys.modules[name])
    if hooks:
        sys.meta_path.insert(0, _Finder(hooks))


def _with_us(folder, value):
    """Return the PYTHONPATH (bytes, or None where unset) with our folder first; spellings as in sitecustomize.py."""
    if value is None:
        return folder + b"/."
    if not value:
        return folder + b"/./."
    first = value.split(b":", 1)[0]
    return value if first in (folder, folder + b"/.", folder + b"/./.") else folder + b":" + value


# --- children ---------------------------------------------------------------------------------------------------------


def _like(wrapper, wrapped):
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(wrapper, name, getattr(wrapped, name))
    return wrapper


def _keep_in_c_environment(folder, data):
    """What the script does to PYTHONPATH keeps our folder first for children that inherit the C environment."""
    real_put, real_unset = os.putenv, os.unsetenv

    def putenv(name, value, /):
        try:
            if os.fsencode(name) == PYTHONPATH and AGENT in data:
                value = _with_us(folder, os.fsencode(value))
        except Exception:
            pass
        return real_put(name, value)

    def unsetenv(name, /):
        try:
            key = os.fsencode(name)
            if key == PYTHONPATH and AGENT in data:
                return real_put(PYTHONPATH, _with_us(folder, None))
            if key == AGENT:  # the script wants us gone: then altogether
                if PYTHONPATH in data:
                    real_put(PYTHONPATH, data[PYTHONPATH])
                else:
                    real_unset(PYTHONPATH)
        except Exception:
            pass
        return real_unset(name)

    os.putenv, os.unsetenv = _like(putenv, real_put), _like(unsetenv, real_unset)
    if hasattr(os, "reload_environ"):  # 3.14: reads the C environment again
        real_reload = os.reload_environ

        def reload_environ():
            before = data.get(PYTHONPATH)
            real_reload()
            if AGENT in data:
                data.pop(PYTHONPATH, None)
                if before is not None:
                    data[PYTHONPATH] = before

        os.reload_environ = _like(reload_environ, real_reload)


def _extended(env, folder):
    """Return a copy of a mapping for exec with our folder first in PYTHONPATH, or `env` itself if it is not for us."""
    try:
        text = isinstance(next(iter(env)), str)
        if (os.fsdecode(AGENT) if text else AGENT) not in env:
            return env
        copy = dict(env)
        key = os.fsdecode(PYTHONPATH) if text else PYTHONPATH
        value = copy.get(key)
        copy[key] = _with_us(folder, None if value is None else os.fsencode(value))
        return copy
    except Exception:
        return env


def _keep_in_explicit_environments(folder):
    """`os.environ.copy()` shows PYTHONPATH as the user set it: put our folder back where such a copy starts a child."""
    real_execve = os.execve

    def execve(path, argv, env):
        return real_execve(path, argv, _extended(env, folder))

    os.execve = _like(execve, real_execve)
    if real_execve in os.supports_fd:
        os.supports_fd.add(execve)
    for name in ("posix_spawn", "posix_spawnp"):
        real = getattr(os, name, None)
        if real is not None:
            setattr(os, name, _like(_spawner(real, folder), real))


def _spawner(real, folder):
    def spawn(path, argv, env, /, **options):
        return real(path, argv, _extended(env, folder), **options)

    return spawn


def _wrap_fork_exec(module, folder):
    """subprocess and multiprocessing start children here; argument 5 is a list of b"NAME=value", or None to inherit."""
    real = module.fork_exec

    def fork_exec(*args):
        try:
            environment = args[5]
            if environment is not None and any(word.startswith(AGENT + b"=") for word in environment):
                prefix = PYTHONPATH + b"="
                values = [word[len(prefix) :] for word in environment if word.startswith(prefix)]
                kept = [word for word in environment if not word.startswith(prefix)]
                kept.append(prefix + _with_us(folder, values[0] if values else None))
                args = (*args[:5], kept, *args[6:])
        except Exception:
            pass
        return real(*args)

    module.fork_exec = _like(fork_exec, real)
    subprocess = sys.modules.get("subprocess")
    if getattr(subprocess, "_fork_exec", None) is real:
        subprocess._fork_exec = fork_exec


# --- torch ------------------------------------------------------------------------------------------------------------


class _Finder:
    """Calls `hooks[name](module)` once after a module of that name was imported, found by whoever finds it.

    The import system sets `spec._initializing = False` when a module has run, with or without an error. Listening there
    keeps the loader real and our frames out of the traceback of an import that fails.
    """

    def __init__(self, hooks):
        self.hooks = hooks
        self.inside = set()  # names being looked up: other tools' finders may ask us again

    def find_spec(self, name, path=None, target=None):
        if name not in self.hooks or name in self.inside:
            return None
        self.inside.add(name)
        try:
            finders = list(sys.meta_path)
            for finder in finders[finders.index(self) + 1 :]:
                find_spec = getattr(finder, "find_spec", None)
                spec = find_spec(name, path, target) if find_spec is not None else None
                if spec is not None:
                    if spec.loader is not None:
                        self._listen(spec)
                    return spec
        except Exception:
            pass  # the import system asks the same finder again and meets the same error without us
        finally:
            self.inside.discard(name)
        return None

    def _listen(self, spec):
        real = type(spec)

        def set_attribute(spec, name, value):
            object.__setattr__(spec, name, value)
            if name == "_initializing" and not value:
                spec.__class__ = real
                self._imported(spec)

        namespace = {"__setattr__": set_attribute, "__module__": real.__module__, "__qualname__": real.__qualname__}
        spec.__class__ = type(real.__name__, (real,), namespace)

    def _imported(self, spec):
        try:
            module = sys.modules.get(spec.name)
            if module is None or getattr(module, "__spec__", None) is not spec:
                return  # it failed; the next attempt comes by here again
            hook = self.hooks.pop(spec.name, None)
            if not self.hooks:
                sys.meta_path.remove(self)
            if hook is not None:
                hook(module)
        except (Exception, SystemExit):
            pass


def _load_agent(package, recording, options):
    """Import the agent from its folder, without a trace on disk, and install it."""
    name = "_underfed_agent"
    if name in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    keep, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec = spec_from_file_location(name, os.path.join(package, "__init__.py"), submodule_search_locations=[package])
        module = module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            module.install(recording, options)
        except BaseException:
            for loaded in [key for key in sys.modules if key == name or key.startswith(name + ".")]:
                del sys.modules[loaded]
            raise
    finally:
        sys.dont_write_bytecode = keep
