"""The second and the third system: `debate ask` and `debate brief`, from their inputs to their files."""
