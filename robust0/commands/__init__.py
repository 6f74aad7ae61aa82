"""The commands without their terminal: options in, jobs out."""
