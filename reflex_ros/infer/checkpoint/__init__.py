"""Checkpoint folders: read completely or not at all.

A folder holds ``config.json``, ``model.safetensors``, the two processor files with their
statistics, ``tokenizer/`` and ``manifest.json`` with the SHA-256 of every other file.
"""

from reflex_ros.infer.checkpoint.folder import Checkpoint, load_folder, save_folder
from reflex_ros.infer.checkpoint.processors import Scaling, Scalings

__all__ = ['Checkpoint', 'Scaling', 'Scalings', 'load_folder', 'save_folder']
