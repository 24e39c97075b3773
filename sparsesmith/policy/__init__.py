"""The policy's networks as torch modules and as files: what the generator's engine and the trainer share."""
