"""Results leave the rented box whole: `collect` to durable storage, `pull` over a link that drops.

Three words are never mixed. *copied*: bytes were written. *size-matched*: source and copy have the same length.
*verified*: the copy was read back and its hash equals the source's. Only the last one counts as success.
"""
