"""Measuring: one whole round on the bench document, the raw rates of the same machine, and settings tried out."""
