"""What keeps a training run from going faster, what fixing it is worth, and is the faster result still true?"""

__version__ = "0.1.0"
