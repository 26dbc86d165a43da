"""An extension of griffe: the reference shows the names that a package exports by its list in a .pyi file."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Module


class StubExports(Extension):
    """Take the names of a package that loads them on first use for exported."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Go through all modules."""
        modules = [pkg]
        while modules:
            module = modules.pop()
            modules += module.modules.values()
            if module.exports is None and "lazy_loader" in module.members:
                own = f"{module.path}."
                module.exports = [n for n, m in module.members.items() if m.is_alias and m.target_path.startswith(own)]
