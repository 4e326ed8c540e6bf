"""The store on disk: blobs by digest, layer records, locks and claims of processes, and garbage collection."""
