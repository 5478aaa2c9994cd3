"""A robot that exists only in time: takes as long as its profile says, and keeps a simple scene."""
