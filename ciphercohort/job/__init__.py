"""What a run is asked to do: options, bounds, places, public figures."""
