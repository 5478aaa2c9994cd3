"""The paper Semantic Scheduling for LLM Inference, with its baselines."""
