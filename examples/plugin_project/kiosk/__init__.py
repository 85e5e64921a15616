"""A program whose plugins bring jobs along."""
