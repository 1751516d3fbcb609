"""GPU facts from NVML: clocks, power, throttling, memory, links, and GPM counters where the card has them."""
