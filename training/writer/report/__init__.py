"""What a training run leaves behind: log, curves, manifest, held-out questions and card."""
