"""Engines: adapters that turn requests into replies. Heavy packages are imported only inside their own module."""
