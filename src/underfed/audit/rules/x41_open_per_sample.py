"""An HDF5, Zarr, LMDB, archive or table file is opened anew for every sample.

Why it costs
    Opening reads the file's index again each time: milliseconds for a sample of kilobytes, and on network storage
    far more.

Fix
    Open once in each worker, at the first access (if self.file is None: self.file = h5py.File(...)), or in
    worker_init_fn. Not in __init__: workers would share the handle.

When it stays silent
    The handle is kept on self or guarded by `if self.file is None`; files that hold one sample each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.rule import AuditRule, Code

_OPENS = frozenset(
    [
        "h5py.File",
        "zarr.open",
        "zarr.open_group",
        "lmdb.open",
        "tables.open_file",
        "netCDF4.Dataset",
        "xarray.open_dataset",
        "xarray.open_zarr",
        "zipfile.ZipFile",
        "tarfile.open",
        "pyarrow.parquet.read_table",
        "pyarrow.parquet.ParquetFile",
        "pandas.read_csv",
        "pandas.read_parquet",
        "pandas.read_hdf",
        "sqlite3.connect",
    ]
)


def check(code: Code) -> Iterator[Hit]:
    """Find files of many samples that `__getitem__` opens."""
    for hot in code.sampled:
        if not isinstance(hot.node, ast.Call):
            continue
        name = code.module.called(hot.node)
        if name not in _OPENS or _kept(code, hot.node) or _in_iter(code, hot.node):
            continue
        shared = bool(hot.node.args) and _is_own(hot.node.args[0])
        yield Hit(hot.node, f"{name}() opens the file anew for every sample", hot.sure if shared else "likely")


def _is_own(node: ast.AST) -> bool:
    """Return whether the path does not depend on the sample: an attribute of self, a constant."""
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    )


def _kept(code: Code, call: ast.Call) -> bool:
    for around in code.module.up(call):
        if isinstance(around, ast.Assign) and any("self." in ast.unparse(target) for target in around.targets):
            return True
        if isinstance(around, ast.If) and ("None" in ast.unparse(around.test) or "hasattr" in ast.unparse(around.test)):
            return True
    return False


def _in_iter(code: Code, call: ast.Call) -> bool:
    function = code.module.function_of(call)
    return function is not None and function.name == "__iter__"


RULE = AuditRule(
    id="X41",
    name="file-opened-per-sample",
    settle="`underfed run`: open calls a sample, and time of the workers in them",
    doc=__doc__ or "",
    check=check,
)
