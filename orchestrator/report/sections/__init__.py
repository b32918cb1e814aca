"""The parts of the page, each a pure function of the material: a section, or the reason why it is missing."""
