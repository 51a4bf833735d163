"""Engines: adapters that turn requests into replies. Heavy packages are imported only inside their own module."""

import os

# How long llama.cpp's threads spin when they wait for each other: through one token's work, not through ours between
# two (see llama_threads). The OpenMP library reads these when it is loaded; what a user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
