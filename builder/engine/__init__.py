"""Build engines, docker buildx and buildah: run one target of a rendered Dockerfile to a tar; docker's daemon."""
