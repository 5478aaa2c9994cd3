"""The default discipline ``timely``, its parts and its ablations."""
