"""Many artifacts in one run, on one engine. The rounds are its state: running it again is the resume."""
