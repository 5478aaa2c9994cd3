"""What the server tells about itself: event log, metrics, totals, status."""
