"""Facts that carry the date on which somebody last checked them, and how old they have become."""
