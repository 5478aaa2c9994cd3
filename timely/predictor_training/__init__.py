"""Trains predictor files from traces and labelled texts."""
