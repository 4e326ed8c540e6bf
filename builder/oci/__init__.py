"""OCI images as data: layer blobs, manifests, assembly of an image, layouts and archives."""
