"""The paper SageSched, with its baselines."""
