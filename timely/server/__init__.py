"""The task service over HTTP.

``create_app`` makes the application for an engine. ``serve_app`` runs it in the foreground until a signal, and
``ServerThread`` in the background of a program or a test. Errors are problem details with a stable ``code``.
"""

from timely.server.app import create_app
from timely.server.run import serve_app
from timely.server.server_thread import ServerThread
from timely.server.settings import ServerSettings

__all__ = ["ServerSettings", "ServerThread", "create_app", "serve_app"]
