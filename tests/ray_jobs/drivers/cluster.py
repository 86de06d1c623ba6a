"""A cluster for other drivers to join; says its address, and lives until its input ends."""

from __future__ import annotations

import sys

import ray

ray.init("local", num_cpus=2, include_dashboard=False)
sys.stdout.write(ray.get_runtime_context().gcs_address + "\n")
sys.stdout.flush()
sys.stdin.read()
ray.shutdown()
