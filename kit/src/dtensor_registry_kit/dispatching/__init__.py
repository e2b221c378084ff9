"""Check what an op does on DTensors, through torch's dispatch, on simulated ranks."""
