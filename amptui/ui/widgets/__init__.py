"""Thin widgets over the rasters: they keep the value last shown, and repaint the cells that changed."""
