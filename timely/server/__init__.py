"""The task service over HTTP.

``app.create_app`` makes the application for an engine. ``run.run_server`` serves an engine in the foreground until a
signal, and ``server_thread.ServerThread`` an application in the background of a program or a test. Errors are problem
details with a stable ``code``. The package itself imports nothing: a server goes on with its plans before an HTTP
library is loaded.
"""
