"""How a conditioned model is trained: one loop, a handful of tasks, records of what happened."""
