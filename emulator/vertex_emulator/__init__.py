"""An emulator of Vertex AI's API, which runs its jobs on this machine."""
