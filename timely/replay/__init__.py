"""A trace through an engine: tasks in, what each robot saw out, as data, report and picture."""
