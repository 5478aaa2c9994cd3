"""TimelyLLM, section 7, in the simulator."""
