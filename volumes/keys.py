"""By what a driver volume is known. Lean: the executor imports it."""


def key_of(version: str, variant: str = "") -> str:
    """What a store knows the volume of a driver version by: "535.261.03", "535.261.03+shim-0123456789ab"."""
    return f"{version}+{variant}" if variant else version
