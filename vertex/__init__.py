"""What is known of Vertex AI: facts, machines and prices, a client, and an emulator."""
