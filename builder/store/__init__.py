"""The store on disk: blobs by digest, layer records, claims of processes, and the removal of what nobody needs."""
