"""Remedies for missing readings, for people. A reading's own reason states why it is missing."""

_NEEDS_TOOL = {
    "macmon": "install macmon (brew install macmon); the PyPI package of that name is another program",
    "zeus-apple-silicon": "install the package zeus-apple-silicon",
    "pyobjc-framework-Cocoa": "install the package pyobjc-framework-Cocoa",
    "nvidia-ml-py": "on a machine with an NVIDIA GPU: install the package nvidia-ml-py",
}
_BY_FIELD = {
    ("linux", "thermal_level"): "nothing: only macOS states a level; thermal_zone_c and cpu_mhz stand in for it",
    ("linux", "thermal_zone_c"): "a physical machine: a virtual one has no sensors",
    ("linux", "power_source"): "a machine with a battery; others run on mains power in any case",
    ("linux", "power_mode"): "a physical machine whose firmware or kernel sets the clock",
    ("linux", "cpu_mhz"): "a physical machine whose kernel sets the clock (cpufreq)",
    ("linux", "cpu_mhz_max"): "a physical machine whose kernel sets the clock (cpufreq)",
    ("darwin", "wired_limit_bytes"): "sudo sysctl iogpu.wired_limit_mb=N; 0 is the system's own default",
    ("darwin", "cpu_speed_limit_percent"): "nothing on Apple silicon, which records no such limit",
}


def remedy(platform: str, field: str, reason: str) -> str | None:
    """Return the remedy in one line, or None if no remedy is known."""
    if reason.startswith("a difference needs two readings"):
        return "a second reading"
    for tool, words in _NEEDS_TOOL.items():
        if reason.startswith(f"{tool} is not installed"):
            return words
    if field.startswith("stalled_"):
        return "a kernel with pressure stall information (psi=1)"
    return _BY_FIELD.get((platform, field))
