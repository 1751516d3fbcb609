"""What is true of each planted script, written down from the fault that was planted and before any verdict was seen.

`bounds` and `rules` hold every answer that a careful colleague could give first: manual ids (T4), or `X:word`, a rule
that the manual does not number and whose name holds the word. The place of the fault is marked `# fault` in the
script, or `# fault T8 U8` where it answers for these rules alone. `never` lists the rules that must not be advised as
helping now, `never_said` patterns that no such advice may hold in a clause without a negation. `fixed` are the
arguments that take the fault out: `check_faults.py` times both.
"""

from __future__ import annotations

from dataclasses import dataclass

MORE_WORKERS = r"\b(more|add|raise|increase)\b.{0,25}\bworkers?\b"

# A rule about Python work on the training thread outside forward, backward and optimizer may answer for any of these.
BETWEEN = ("X:between", "X:after", "X:outside", "X:thread", "X:python", "X:stall", "X:host")


@dataclass(frozen=True, kw_only=True)
class Planted:
    """One script, its command line and the truth about it."""

    script: str
    bounds: tuple[str, ...]
    rules: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    store: tuple[str, ...] = ()
    """Options of store.py, which runs beside the job where given; `fixed_store` are its options without the fault."""
    fixed_store: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    never_said: tuple[str, ...] = ()
    place: bool = True
    """Whether the first finding must point to the marked line; where False it may also have no place."""
    quiet: bool = False
    """Nothing is wrong: no finding may claim to help now."""
    needs: tuple[str, ...] = ()
    steps: int | None = None
    """Optimizer steps (batches where there is no optimizer) of the whole run."""
    same_output: bool = True
    exit_code: int = 0

    @property
    def id(self) -> str:
        return self.script.removesuffix(".py")


GLOO = ("torchrun", "--standalone", "--nproc-per-node", "2")

PLANTED = (
    # -- data: nobody loads ahead
    Planted(script="resize_zero_workers.py", bounds=("data",), rules=("T4",), fixed=("--workers", "2"), steps=300),
    Planted(
        script="read_from_store.py",
        bounds=("data",),
        rules=("T4", "T8", "U8"),
        fixed=("--workers", "8"),
        store=("--latency-ms", "4"),
        steps=125,
    ),
    Planted(script="next_iterator.py", bounds=("data",), rules=("T4",), fixed=("--num_workers", "2"), steps=250),
    Planted(script="grad_accumulation.py", bounds=("data",), rules=("T4",), fixed=("--workers", "2"), steps=160),
    Planted(script="two_optimizers.py", bounds=("data",), rules=("T4",), fixed=("--n_cpu", "2"), steps=200),
    Planted(script="scaler_scheduler.py", bounds=("data",), rules=("T4",), fixed=("-j", "2"), steps=160),
    Planted(script="evaluate.py", bounds=("data",), rules=("T4",), fixed=("--workers", "2"), steps=200),
    Planted(
        script="hf_trainer.py",
        bounds=("data",),
        rules=("T4",),
        fixed=("--workers", "2"),
        needs=("transformers", "accelerate"),
        steps=120,
    ),
    Planted(
        script="lightning_fit.py",
        bounds=("data",),
        rules=("T4",),
        fixed=("--workers", "2"),
        needs=("lightning",),
        steps=160,
    ),
    Planted(
        script="accelerate_loop.py",
        bounds=("data",),
        rules=("T4",),
        fixed=("--workers", "2"),
        needs=("accelerate",),
        steps=120,
    ),
    Planted(script="own_profiler.py", bounds=("data",), rules=("T4",), fixed=("--workers", "2"), steps=125),
    Planted(script="own_cprofile.py", bounds=("data",), rules=("T4",), steps=100),
    # -- data: workers that cannot keep up
    Planted(
        script="one_worker_augment.py",
        bounds=("data",),
        rules=("T4", "T8"),
        fixed=("--num-workers", "2"),
        place=False,
        steps=320,
    ),
    Planted(
        script="one_worker_latency.py",
        bounds=("data",),
        rules=("T4", "T8", "U8"),
        fixed=("--workers", "8"),
        store=("--latency-ms", "4"),
        place=False,
        steps=150,
    ),
    Planted(
        script="heavy_augment.py",
        bounds=("data",),
        rules=("T8",),
        fixed=("--strength", "0"),
        never=("T4", "T7"),
        never_said=(MORE_WORKERS,),
        steps=200,
    ),
    Planted(
        script="tokenise_in_getter.py",
        bounds=("data",),
        rules=("T8", "X:token"),
        fixed=("--pretokenised",),
        never=("T4", "T7"),
        never_said=(MORE_WORKERS,),
        steps=160,
    ),
    Planted(
        script="tabular_rows.py",
        bounds=("data",),
        rules=("T8", "X:row", "X:pandas", "X:frame"),
        fixed=("--arrays",),
        never=("T4", "T7"),
        never_said=(MORE_WORKERS,),
        needs=("pandas",),
        steps=500,
    ),
    Planted(
        script="eight_workers.py",
        bounds=("data",),
        rules=("T8", "X:oversub", "X:workers", "X:cpu", "X:core"),
        fixed=("--passes", "0"),
        never=("T4", "T7"),
        never_said=(MORE_WORKERS,),
        steps=180,
    ),
    Planted(
        script="store_bandwidth.py",
        bounds=("data",),
        rules=("U8", "T8"),
        store=("--mb-s", "6"),
        fixed_store=("--mb-s", "0"),
        steps=120,
    ),
    Planted(
        script="bursty_store.py",
        bounds=("data",),
        rules=("T7", "X:burst"),
        fixed=("--prefetch", "32"),
        store=("--latency-ms", "0.5", "--cold-every", "60", "--cold-ms", "160"),
        steps=210,
    ),
    Planted(
        script="short_epochs.py",
        bounds=("data",),
        rules=("T5",),
        fixed=("--keep-workers",),
        never=("T4", "T7"),
        never_said=(MORE_WORKERS,),
        steps=240,
    ),
    Planted(
        script="short_epochs_spawn.py",
        bounds=("data",),
        rules=("T5",),
        fixed=("--persistent",),
        never=("T4", "T7"),
        never_said=(MORE_WORKERS,),
        steps=90,
    ),
    Planted(
        script="one_shard_stream.py",
        bounds=("data",),
        rules=("X:iterable", "X:shard", "X:worker", "X:idle", "T8", "U8"),
        fixed=("--shards", "4"),
        never=("T4", "T7"),
        never_said=(MORE_WORKERS,),
        steps=160,
    ),
    # -- data: no DataLoader
    Planted(
        script="csv_generator.py",
        bounds=("data",),
        rules=("T4", "T8", "X:generator", "X:iterator", "X:loader", "X:input"),
        fixed=("--cache",),
        steps=250,
    ),
    Planted(
        script="get_batch_slow.py",
        bounds=("data", "host"),
        rules=("T4", "T8", "X:batch", "X:data", "X:loader", *BETWEEN),
        fixed=("--encoded",),
        steps=400,
    ),
    # -- host: work of the training thread around the step
    Planted(
        script="log_after_step.py",
        bounds=("host",),
        rules=("X:log", "X:print", "X:fsync", *BETWEEN),
        fixed=("--log-every", "1000000"),
        never=("T4", "T5", "T7", "T8"),
        never_said=(MORE_WORKERS,),
        steps=500,
    ),
    Planted(
        script="checkpoint_often.py",
        bounds=("host",),
        rules=("X:checkpoint", "X:save"),
        fixed=("--ckpt-every", "1000000"),
        never=("T4", "T8"),
        steps=300,
    ),
    Planted(
        script="validate_often.py",
        bounds=("host", "compute"),
        rules=("X:valid", "X:eval"),
        fixed=("--eval-every", "1000000"),
        never=("T4", "T8"),
        steps=1200,
    ),
    Planted(
        script="estimate_loss.py",
        bounds=("host", "compute"),
        rules=("X:valid", "X:eval"),
        fixed=("--eval-every", "1000000"),
        never=("T4", "T8", "T15"),
        steps=500,
    ),
    Planted(
        script="ema_every_step.py",
        bounds=("host",),
        rules=("X:ema", *BETWEEN),
        fixed=("--no-ema",),
        never=("T4", "T8"),
        steps=150,
    ),
    Planted(
        script="collect_every_step.py",
        bounds=("host",),
        rules=("X:gc", "X:garbage", "X:collect"),
        fixed=("--no-collect",),
        never=("T4", "T8"),
        steps=80,
    ),
    Planted(
        script="metrics_every_step.py",
        bounds=("host",),
        rules=("X:metric", *BETWEEN),
        fixed=("--metrics-every", "1000000"),
        never=("T4", "T8"),
        steps=500,
    ),
    # -- host or compute: on a CPU the Python thread and the device are one
    Planted(
        script="anomaly_left_on.py",
        bounds=("host", "compute"),
        rules=("T12", "X:anomaly", "X:debug"),
        fixed=("--no-anomaly",),
        steps=250,
    ),
    Planted(
        script="handmade_adam.py",
        bounds=("host", "compute"),
        rules=("T12", "X:optim", "X:foreach"),
        fixed=("--optimizer", "adamw"),
        never=("T4", "T8"),
        steps=150,
    ),
    Planted(
        script="tiny_ops.py",
        bounds=("host", "compute"),
        rules=("T15", "T18", "X:tiny", "X:small", "X:launch"),
        fixed=("--cell", "library"),
        never=("T4", "T8"),
        place=False,
        steps=150,
    ),
    Planted(
        script="per_sample_forward.py",
        bounds=("host", "compute"),
        rules=("T15", "T18", "X:tiny", "X:small", "X:launch", "X:sample", "X:forward", "X:batch"),
        fixed=("--together",),
        never=("T8",),
        place=False,
        steps=200,
    ),
    Planted(
        script="attention_weights.py",
        bounds=("compute",),
        rules=("T14", "X:attention", "X:need", "X:weights"),
        fixed=("--no-weights",),
        never=("T4", "T8"),
        place=False,
        steps=60,
    ),
    Planted(
        script="compile_shapes.py",
        bounds=("host", "compute"),
        rules=("T16",),
        fixed=("--pad",),
        never=("T4", "T8"),
        steps=60,
    ),
    # -- nothing wrong, or nothing that may be claimed
    Planted(script="healthy_mlp.py", bounds=("compute",), quiet=True, steps=200),
    Planted(script="healthy_conv.py", bounds=("compute",), quiet=True, steps=200),
    Planted(script="list_of_batches.py", bounds=("compute",), quiet=True, steps=200),
    Planted(script="nanogpt.py", bounds=("compute",), quiet=True, steps=120),
    Planted(
        script="threads_64.py",
        bounds=("compute", "host"),
        fixed=("--threads", "2"),
        never=("T4", "T5", "T7", "T8"),
        place=False,
        steps=120,
        same_output=False,  # the last digits depend on how the sums are split over threads
    ),
    Planted(script="own_settrace.py", bounds=("compute", "host"), never=("T4", "T8"), place=False, steps=200),
    Planted(script="own_handlers.py", bounds=("compute", "host"), never=("T4", "T8"), place=False, steps=300),
    # -- two ranks
    Planted(
        script="ddp_slow_rank.py",
        bounds=("data",),
        rules=("T4", "T8", "U8", "X:straggler", "X:rank", "X:skew"),
        fixed=("--slow-ms", "0.1"),
        launcher=GLOO,
        steps=120,
    ),
    Planted(
        script="ddp_no_sync.py",
        bounds=("comms",),
        rules=("T23", "X:sync", "X:accum", "X:reduce"),
        fixed=("--no-sync",),
        launcher=GLOO,
        never=("T4", "T8"),
        place=False,
        steps=40,
    ),
    # -- ends early or never begins
    Planted(script="raises.py", bounds=("unknown", "host", "compute"), place=False, exit_code=1),
    Planted(script="aborts.py", bounds=("unknown", "host", "compute"), place=False, exit_code=-6),
    Planted(script="exits_3.py", bounds=("unknown", "host", "compute"), place=False, exit_code=3),
    Planted(script="few_steps.py", bounds=("unknown",), place=False, quiet=True),
    Planted(script="no_steps.py", bounds=("unknown",), place=False, quiet=True),
    Planted(script="no_torch.py", bounds=("unknown",), args=("a", "b"), place=False, quiet=True),
)
