"""Engines: adapters that turn requests into replies. Heavy packages are imported only inside their own module."""

import os

# llama.cpp's threads meet many times per token. Waiting in a spin costs nothing on an idle machine and everything on a
# shared one: with one other process on the same two cores it took twice as long (116 s against 53 s). The OpenMP
# library reads this when it is loaded; what a user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
