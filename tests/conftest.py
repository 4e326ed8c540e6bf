from tests.support.fixtures import engine, make_plan, make_project, mirror, small, store

__all__ = ["engine", "make_plan", "make_project", "mirror", "small", "store"]
