"""HTTP routes, schemas, event streams and problem details."""
