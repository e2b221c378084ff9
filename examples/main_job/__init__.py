"""The main job: a sharded training run on four processes, held against one plain process."""
