"""Scripted experts: commands and chunks from the truth alone."""
