"""An image as files: opened from a layout, a store or a registry, its layers read as streams."""
