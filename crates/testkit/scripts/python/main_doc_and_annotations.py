"""A doc string."""
x: int = 3
print(__doc__, __annotations__)
