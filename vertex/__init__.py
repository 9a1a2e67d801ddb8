"""Vertex AI: facts, machines and prices, a client, the registry, and an emulator."""
