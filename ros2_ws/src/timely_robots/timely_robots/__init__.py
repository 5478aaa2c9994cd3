"""Robot drivers: lifecycle nodes that execute plan segments and report what was actually done."""
