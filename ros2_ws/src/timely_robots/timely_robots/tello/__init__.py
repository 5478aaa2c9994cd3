"""The Ryze Tello, driven through the library djitellopy."""
