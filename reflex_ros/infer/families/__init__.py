"""Model families: how each checkpoint kind is read, encoded and denoised."""
