"""The paper Justitia, with its baselines."""
