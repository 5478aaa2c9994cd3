"""Principals with their roles, sessions of the live page, and the audit of what they do."""
