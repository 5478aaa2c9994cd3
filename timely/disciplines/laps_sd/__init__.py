"""The paper LAPS-SD, with its baselines."""
