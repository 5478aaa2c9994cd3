"""Records a robot's skills over a grid of arguments."""
