"""What `underfed run` puts on PYTHONPATH. Only `sitecustomize.py` is found from there; it cleans up after itself."""
