"""Results leave the rented machine whole: manifests, collect, pull."""
