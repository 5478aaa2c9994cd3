"""Schedulers of other systems, written anew from their papers and published rules, to be compared with."""
