"""How many robots a machine carries: a workload's load is raised until too few tasks are in time."""
