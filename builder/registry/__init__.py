"""The client of the OCI distribution API: references to blobs and manifests, logins, push."""
