"""Telling an effect from drift: pure, numpy only. `orchestrator.effects` and `orchestrator.audit` are its doors."""
