"""Commands about images: plan, render, build, test, push, load, mirror, gc."""
