"""What lies on disk of a brain: read it, or turn old bytes into new ones. Callers write."""
