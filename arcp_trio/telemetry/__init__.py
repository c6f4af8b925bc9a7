"""What the runtime tells other systems of itself. Each module needs its extra."""
