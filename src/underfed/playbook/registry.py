"""All rules in cost order: a new rule is one module under `rules/` and one line here."""

from __future__ import annotations

from underfed.playbook.rule import Rule
from underfed.playbook.rules import (
    m05_tiny_accumulation,
    m08_allocator,
    m18_device_memory_grows,
    p03_bf16_emulated,
    p19_deterministic,
    t01_cannot_tell,
    t02_utilization_misleads,
    t03_threads_above_quota,
    t04_too_few_workers,
    t05_workers_restart,
    t06_blocking_copy,
    t07_shallow_queue,
    t08_transform_saturates,
    t09_tf32_off,
    t10_cudnn_search,
    t11_nchw,
    t12_debug_mode,
    t13_fp32,
    t14_unfused_attention,
    t15_launch_bound,
    t16_recompiles,
    t17_checkpointing,
    t18_small_batch,
    t23_exposed_collectives,
    u08_slow_storage,
    u09_host_memory,
    u23_clocks,
    u25_small_reads,
    x01_more_workers_than_cpus,
    x02_one_worker_feeds,
    x03_input_on_training_thread,
    x05_host_sync,
    x06_checkpoint,
    x07_validation,
    x08_logging,
    x09_work_on_training_thread,
    x10_garbage_collection,
    x11_single_tensor_optimizer,
    x12_cache_emptied,
    x13_late_rank,
    x14_gpu_not_used,
    x15_pinned_workers,
    x16_pcie_link,
    x17_slower_attention,
    x18_worker_threads,
    x19_misaligned,
    x20_graph_breaks,
    x56_data_parallel,
)

RULES: tuple[Rule, ...] = (
    # box
    t01_cannot_tell.RULE,
    t02_utilization_misleads.RULE,
    t03_threads_above_quota.RULE,
    x14_gpu_not_used.RULE,
    x15_pinned_workers.RULE,
    u09_host_memory.RULE,
    u23_clocks.RULE,
    x16_pcie_link.RULE,
    # dataloader
    t05_workers_restart.RULE,
    x02_one_worker_feeds.RULE,
    t04_too_few_workers.RULE,
    t06_blocking_copy.RULE,
    t07_shallow_queue.RULE,
    x01_more_workers_than_cpus.RULE,
    x18_worker_threads.RULE,
    u08_slow_storage.RULE,
    u25_small_reads.RULE,
    t08_transform_saturates.RULE,
    x03_input_on_training_thread.RULE,
    # free knobs
    t12_debug_mode.RULE,
    t09_tf32_off.RULE,
    t11_nchw.RULE,
    t10_cudnn_search.RULE,
    p19_deterministic.RULE,
    x12_cache_emptied.RULE,
    m08_allocator.RULE,
    x10_garbage_collection.RULE,
    x11_single_tensor_optimizer.RULE,
    x08_logging.RULE,
    x06_checkpoint.RULE,
    x07_validation.RULE,
    x05_host_sync.RULE,
    x09_work_on_training_thread.RULE,
    # precision
    t13_fp32.RULE,
    p03_bf16_emulated.RULE,
    # kernels
    t14_unfused_attention.RULE,
    x17_slower_attention.RULE,
    x19_misaligned.RULE,
    t16_recompiles.RULE,
    x20_graph_breaks.RULE,
    t15_launch_bound.RULE,
    # memory trades
    t17_checkpointing.RULE,
    m05_tiny_accumulation.RULE,
    t18_small_batch.RULE,
    m18_device_memory_grows.RULE,
    # comms
    t23_exposed_collectives.RULE,
    x56_data_parallel.RULE,
    x13_late_rank.RULE,
)


def find(wanted: str) -> Rule | None:
    """Return the rule with this id or name (case does not matter), or None."""
    key = wanted.strip().lower()
    return next((rule for rule in RULES if key in (rule.id.lower(), rule.name)), None)
