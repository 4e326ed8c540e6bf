"""The rules of the hardware, one module for each subject."""
