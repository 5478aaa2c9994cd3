"""The proof on a machine: one resumable benchmark that ends in a page."""
