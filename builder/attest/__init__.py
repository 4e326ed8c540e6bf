"""What an image was built from: receipts of layers."""
