"""`python -m bench.overhead` is `python bench/overhead/run.py`."""

from bench.overhead.run import main

main()
