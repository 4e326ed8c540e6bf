"""The checks of `builder doctor`: driver, GPU, memory, disk, docker and the link, each with a message and a fix."""
