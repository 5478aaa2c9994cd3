"""What disciplines believe of a request before it has run: output lengths, costs, urgency; all run at arrival."""
