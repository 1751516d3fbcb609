"""The playbook: one module a rule, listed in cost order."""
