"""SageSched, its evaluation in the simulator."""
