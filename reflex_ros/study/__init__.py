"""Experiments, checks and measurements over the stages."""
