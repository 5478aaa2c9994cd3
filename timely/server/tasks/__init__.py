"""Tasks: their life from admission to result."""
