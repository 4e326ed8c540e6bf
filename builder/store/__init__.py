"""The store on disk: blobs by digest, layer records, claims of processes, and garbage collection."""
