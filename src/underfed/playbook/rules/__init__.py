"""The rules, one module each; `underfed.playbook.registry` lists them in cost order."""
