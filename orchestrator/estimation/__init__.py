"""Parts of the estimates: levels of drifting series, their trend, and intervals by inverting a test. Pure."""
