"""The columns of the views, as the contract names them."""

TRIAL_FLAT = """
run_id experiment host chip started_at round position arm is_control is_warmup engine engine_version checkpoint bits
draft block_size workload prompt_class turn mlx_version mlx_lm_version os_build thermal_before thermal_max thermal_after
power_source requested engaged useful evidence prompt_tokens cached_tokens completion_tokens finish_reason ttft_s
prefill_tps decode_tps end_to_end_tps accept_length acceptance_rate peak_memory_bytes status excluded_reason
""".split()
MORE_OF_TRIAL_FLAT = """
trial_id generation_id kind is_aa sequence attempt prompt_id generation_position verify_steps drafted accepted
fingerprint engine_decode_tps engine_gap error_kind error_message flags temperature simulated total_s run_status
thermal_reason power_reason interlace_version
""".split()
VERDICT_FLAT = """
run_id experiment host chip created_at treatment control prompt_class turn metric verdict direction ratio ci_low ci_high
p_value rounds wins aa_ratio aa_low aa_high engaged_share reasons drift method_version
""".split()
