"""What a cache costs, by arithmetic alone: cards, models, bytes read per step. No torch, no live engine."""
