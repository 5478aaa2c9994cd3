"""How long a step of the engine takes: profiles, learning, fitting."""
