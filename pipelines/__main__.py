"""The entry point of `python -m pipelines`."""

import vertex_training

if __name__ == "__main__":
    vertex_training.main()
