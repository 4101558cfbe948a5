"""A chip file on the base of another: what it says replaces what the base says, figure by figure, source by source."""


def on_base(base: dict, table: dict) -> dict:
    """The tables of a chip file that names a base, merged over the base's; both as `Chip.to_dict` gives them.

    `base["sources"]` has an entry for every key. A key that the file gives keeps no source of the base: it needs the
    file's own, for the key or its section.
    """
    merged = {**base, **{key: value for key, value in table.items() if key not in ("base", "sources")}}
    given, own = dict(base["sources"]), table.get("sources", {})
    if not isinstance(own, dict):
        return {**merged, "sources": own}
    for section, keys in table.items():
        if not isinstance(base.get(section), dict) or not isinstance(keys, dict) or section == "sources":
            continue
        merged[section] = {**base[section], **keys}
        for name in keys:
            given.pop(f"{section}.{name}", None)
    return {**merged, "sources": given | own}
