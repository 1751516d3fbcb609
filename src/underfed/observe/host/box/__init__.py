"""What this machine really gives: gathered once, measured where that is cheap, and said in sentences."""
