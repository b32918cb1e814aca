"""The schemas in Hydra's ConfigStore, and which of them holds for which group and engine."""

from dataclasses import fields
from typing import Any

from hydra.core.config_store import ConfigStore

from conf import schema

GROUP_SCHEMAS: dict[str, type[Any]] = {
    "checkpoint": schema.CheckpointConfig,
    "engine": schema.EngineConfig,
    "workload": schema.WorkloadConfig,
    "sampling": schema.SamplingConfig,
    "design": schema.DesignConfig,
    "gate": schema.GateConfig,
    "sweep": schema.SweepConfig,
    "db": schema.DbConfig,
    "claim": schema.ClaimConfig,
}

# What an override may choose; claims are only ever set beside results.
PLAN_GROUPS = tuple(group for group in GROUP_SCHEMAS if group != "claim")

# An engine's settings follow from its class, so a YAML file needs nothing but the `_target_` to be checked.
ENGINE_SCHEMAS: dict[str, type[schema.EngineConfig]] = {
    "workers.engines.mlx_lm.MlxLm": schema.MlxLmConfig,
    "workers.engines.mlx_lm_draft.MlxLmDraft": schema.MlxLmDraftConfig,
    "workers.engines.mlx_lm_server.MlxLmServer": schema.MlxLmServerConfig,
    "workers.engines.mlx_lm_server_draft.MlxLmServerDraft": schema.MlxLmServerDraftConfig,
    "workers.engines.dflash_server.DflashServer": schema.DflashServerConfig,
    "workers.engines.omlx.Omlx": schema.OmlxConfig,
    "workers.engines.omlx_dflash.OmlxDflash": schema.OmlxDflashConfig,
    "workers.engines.omlx_mtp.OmlxMtp": schema.OmlxMtpConfig,
    "workers.engines.openai_http.OpenaiHttp": schema.OpenaiHttpConfig,
    "workers.engines.prompt_lookup.PromptLookup": schema.PromptLookupConfig,
    "workers.engines.verify_cost.VerifyCost": schema.VerifyCostConfig,
    "workers.engines.dflash.Dflash": schema.DflashConfig,
    "workers.engines.mtp.Mtp": schema.MtpConfig,
    "workers.engines.simulated.Simulated": schema.SimulatedConfig,
}

SIMULATED_TARGET = "workers.engines.simulated.Simulated"


def register() -> None:
    """Put every schema into the ConfigStore, under `schema/`, apart from the groups' own options. Repeatable."""
    store = ConfigStore.instance()
    for group, config in GROUP_SCHEMAS.items():
        if group != "engine":
            store.store(group="schema", name=group, node=config)
    for target, config in ENGINE_SCHEMAS.items():
        store.store(group="schema/engine", name=target.split(".")[-2], node=config)
    store.store(group="schema", name="root", node=schema.RootConfig)
    # Entry points of a composition. As structured configs they are found whatever the search path holds.
    store.store(name="interlace_root", node={"defaults": ["config", "_self_"]})
    store.store(name="interlace_parts", node={})


def setting_names(config: type[Any]) -> list[str]:
    """The keys that may be set, the engine's class left out: it is chosen by `engine=`."""
    return [field.name for field in fields(config) if field.name != "_target_"]
