"""What every run shares: the model and the images it is about, and its folder."""
