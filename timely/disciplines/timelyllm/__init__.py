"""The paper TimelyLLM: potential utility density."""
