"""The rules, one module each; `underfed.audit.registry` lists them."""
