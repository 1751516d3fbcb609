"""The live view of `attach --watch` and `run --live`: a pure state, a pure picture of it, and terminals at the edge."""
