"""The parts of the page, each a pure function of the material: a section, or why there is none."""
