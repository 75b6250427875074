"""Everything that touches torch: guarded iteration, baseline, replay, origin, regions, measurement."""
