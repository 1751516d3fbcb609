"""From evidence to a Diagnosis: the bound, the budget of a step, the ranking of fixes."""
