"""OCI: the layer normaliser, blobs and the store, layouts, manifests, the registry client."""
