"""A round on disk: its preconditions, its files in the specified order, and every way it can go on or end."""
