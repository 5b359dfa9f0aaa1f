"""Everything between a robot's numbers and a pretrained network's: as the checkpoint saved it."""
