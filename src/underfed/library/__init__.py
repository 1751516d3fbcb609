"""What `import underfed` offers to scripts and notebooks; `underfed/__init__.py` loads it on first use."""
