"""Where reuse ends: what a change of flow time, state, image or words moves in a loaded model."""
