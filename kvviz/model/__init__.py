"""The model behind its two doors: computes what the engine decides. Knows torch and transformers, no asyncio."""
