"""Where figures of a job go besides the run: Prometheus, Ray's own metrics, OTLP, a dashboard; by who judges alone."""
