"""What estimates are made of: levels of drifting series, their trend, and intervals by inverting a test. Pure."""
