"""The groups' schemas in Hydra's ConfigStore. Those of the engines follow from the engines: see the orchestrator."""

from dataclasses import fields
from functools import cache
from typing import Any

from hydra.core.config_store import ConfigStore

from conf import schema
from workers.sampling import Sampling

GROUP_SCHEMAS: dict[str, type[Any]] = {
    "checkpoint": schema.CheckpointConfig,
    "engine": schema.EngineConfig,
    "workload": schema.WorkloadConfig,
    "sampling": Sampling,
    "environment": schema.EnvironmentConfig,
    "design": schema.DesignConfig,
    "gate": schema.GateConfig,
    "sweep": schema.SweepConfig,
    "db": schema.DbConfig,
    "claim": schema.ClaimConfig,
}

# What an override may choose; claims are only ever set beside results.
PLAN_GROUPS = tuple(group for group in GROUP_SCHEMAS if group != "claim")


@cache
def register() -> None:
    """Put every schema into the ConfigStore, under `schema/`, apart from the groups' own options; once per process."""
    store = ConfigStore.instance()
    for group, config in GROUP_SCHEMAS.items():
        if group != "engine":
            store.store(group="schema", name=group, node=config)
    store.store(group="schema", name="root", node=schema.RootConfig)
    # Entry points of a composition. As structured configs they are found whatever the search path holds.
    store.store(name="interlace_root", node={"defaults": ["config", "_self_"]})
    store.store(name="interlace_parts", node={})


def setting_names(config: type[Any]) -> list[str]:
    """The keys that may be set, the engine's class left out: it is chosen by `engine=`."""
    return [field.name for field in fields(config) if field.name != "_target_"]
